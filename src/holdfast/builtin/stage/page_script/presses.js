// The last check of a click. `presses.py` explains it.

// While `armed` is not null, a press that does not hit the expected element is stopped before the page sees it.
// `armed.decided` is undefined until a press arrives, and then whether the press is let through. `armed.cover` is the element that it hit.
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
// Let presses on `element` through, or all presses if `isOpen`, and stop all others.
const watch = (element, isOpen) => {
  listen();  // document.open() removes listeners
  armed = { element, isOpen, decided: undefined, cover: null };
};
const lockedElement = getter(Document.prototype, 'pointerLockElement'), exitPointerLock = method(Document.prototype, 'exitPointerLock');
// An element that has locked the pointer gets all presses. Unlock the pointer, as a person does with Escape, unless this is the element to press.
async function unlock(element) {
  const locked = lockedElement(document);
  if (locked === null || (element !== null && flatContains(element, locked))) return;
  exitPointerLock(document);
  for (let turn = 0; turn < 20 && lockedElement(document) !== null; turn++) await frameTurn();
}
// Watch presses on an element. Return the ref numbers of the frames inside the element; null if the element is gone.
async function arm(options) {
  const element = nodeOf(options.ref);
  if (element === null) return null;
  await unlock(element);
  watch(element, false);
  return options.frames.filter((number) => { const frame = nodeOf(number); return frame !== null && flatContains(element, frame); });
}
// Watch presses in the document of another frame: stop all of them, unless `open`.
async function armFrame(options) {
  if (!options.open) await unlock(null);
  watch(null, options.open);
  return null;
}
// Return what became of the press. Stop watching, unless `keep`.
function disarm(options) {
  next = Math.max(next, options.next);
  const was = armed;
  if (!options.keep) armed = null;
  const isCovered = was !== null && was.decided === false;
  const cover = !isCovered ? null : was.cover === null ? { ref: -1, text: 'the page' } : describe(was.cover);
  return { hit: was?.decided === true, cover, next };
}
