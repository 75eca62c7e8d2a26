// The last check of a click.

// While armed, a press that does not hit the expected element is stopped before the page sees it.
let armed = null;
const PRESSES = ['pointerdown', 'mousedown', 'pointerup', 'mouseup', 'click', 'auxclick', 'dblclick', 'contextmenu', 'dragstart'];
const composedPath = method(Event.prototype, 'composedPath'), preventDefault = method(Event.prototype, 'preventDefault');
const stopEvent = method(Event.prototype, 'stopImmediatePropagation');
function onPress(event) {
  if (armed === null || !event.isTrusted) return;
  if (armed.decided === undefined) {
    const target = composedPath(event)[0];
    const element = armed.element;
    const node = target instanceof Node && nodeType(target) === 1 ? target : null;
    armed.decided = armed.isOpen || element !== null && node !== null && (accepts(element, node) || (shadowOf(node) !== null && flatContains(node, element)));
    armed.cover = node;
  }
  if (!armed.decided) { preventDefault(event); stopEvent(event); }
}
const addListener = method(EventTarget.prototype, 'addEventListener');
const listen = () => { for (const name of PRESSES) addListener(globalThis, name, onPress, { capture: true, passive: false }); };
listen();
// `element` gets the presses; null stops all of them, unless `isOpen` lets all through.
const watch = (element, isOpen) => {
  listen();  // document.open() removes listeners
  armed = { element, isOpen, decided: undefined, cover: null };
};
// Watch presses. Return the numbers of the frames inside the element; null if it is gone.
function arm(options) {
  const element = nodeOf(options.ref);
  if (element === null) return null;
  watch(element, false);
  return options.frames.filter((number) => { const frame = nodeOf(number); return frame !== null && flatContains(element, frame); });
}
function armFrame(options) { watch(null, options.open); return null; }
function disarm(options) {
  next = Math.max(next, options.next);
  const was = armed;
  if (!options.keep) armed = null;
  const isCovered = was !== null && was.decided === false;
  const cover = !isCovered ? null : was.cover === null ? { ref: -1, text: 'the page' } : describe(was.cover);
  return { hit: was?.decided === true, cover, next };
}
