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
    armed.decided = element !== null && node !== null && (accepts(element, node) || (shadowOf(node) !== null && flatContains(node, element)));
    armed.cover = node;
  }
  if (!armed.decided) { preventDefault(event); stopEvent(event); }
}
const addListener = method(EventTarget.prototype, 'addEventListener');
const listen = () => { for (const name of PRESSES) addListener(globalThis, name, onPress, { capture: true, passive: false }); };
listen();
function arm(options) {
  listen();  // document.open() removes listeners
  armed = { element: options.ref < 0 ? null : nodeOf(options.ref), decided: undefined, cover: null };
  return options.ref < 0 || armed.element !== null;
}
function disarm(options) {
  next = Math.max(next, options.next);
  const was = armed;
  armed = null;
  const isCovered = was !== null && was.decided === false;
  const cover = !isCovered ? null : was.cover === null ? { ref: -1, text: 'the page' } : describe(was.cover);
  return { hit: was?.decided, cover, next };
}
