// Where the mouse can hit an element, and what covers it.

// Wait for the next animation frame, but at most 60 ms. Return whether there was one.
const frameTurn = () => new Promise((resolve) => {
  const timer = setTimeout(() => resolve(false), 60);
  requestAnimationFrame(() => { clearTimeout(timer); resolve(true); });
});
const isVisible = (element) => checkVisibility(element, { visibilityProperty: true, contentVisibilityAuto: true }) &&
  [...clientRects(element)].some((rect) => rect.width > 0 && rect.height > 0);
// A covering element, as Python shows it.
function describe(element) {
  if (element === null) return { ref: -1, text: 'nothing' };
  const tag = localName(element);
  const role = roleOf(element, tag) || tag;
  const name = clean(givenName(element, tag, role) || textOf(element, 80), 60);
  return { ref: refOf(element), text: clean(`${role} ${name}`, 100) };
}
// The element at a point, also inside shadow roots.
function deepFromPoint(x, y) {
  let hit = elementFromPoint(document, x, y);
  for (let steps = 0; hit !== null && steps < 50; steps++) {
    const shadow = shadowOf(hit);
    const inner = shadow === null ? null : shadowElementFromPoint(shadow, x, y);
    if (inner === null || inner === hit) break;
    hit = inner;
  }
  return hit;
}
// Whether a click on `hit` is a click on the element: `hit` is inside it, or in its label.
const accepts = (element, hit) => hit !== null && (flatContains(element, hit) ||
  (element instanceof HTMLElement && hit instanceof HTMLElement && closest(hit, 'label') !== null && closest(hit, 'label').control === element));
// A point at which the mouse hits the element, or else what covers it.
function pointIn(element) {
  const width = innerWidth, height = innerHeight;
  let cover = null;
  for (const rect of clientRects(element)) {
    const left = Math.max(rect.left, 0), top = Math.max(rect.top, 0), right = Math.min(rect.right, width), bottom = Math.min(rect.bottom, height);
    if (right - left < 1 || bottom - top < 1) continue;
    for (const [across, down] of [[0.5, 0.5], [0.25, 0.5], [0.75, 0.5], [0.5, 0.2], [0.5, 0.8], [0.1, 0.1], [0.9, 0.9]]) {
      const x = left + (right - left) * across, y = top + (bottom - top) * down;
      const hit = deepFromPoint(x, y);
      if (accepts(element, hit)) return { x, y };
      cover ??= hit;
    }
  }
  return { cover };
}
// Wait until the element is visible, does not move, is enabled and can be hit. Return the point, or the reason why it cannot be hit.
async function locate(options) {
  next = Math.max(next, options.next);
  const deadline = performance.now() + options.ms;
  let state = { state: 'moving' };
  let before = null;
  let turns = 0;  // how long the element has not moved: 4 for each animation frame, 1 for each wait without one
  for (;;) {
    const element = nodeOf(options.ref);
    if (element === null) return { state: 'gone', next };
    if (!isVisible(element)) { state = { state: 'hidden' }; before = null; }
    else if (options.enabled && isDisabled(element)) { state = { state: 'disabled' }; before = null; }
    else {
      let rect = boundingRect(element);
      if (rect.top < 0 || rect.left < 0 || rect.bottom > innerHeight || rect.right > innerWidth) {
        scrollIntoView(element, { block: 'center', inline: 'center', behavior: 'instant' });
        rect = boundingRect(element);
      }
      const here = [rect.x, rect.y, rect.width, rect.height].join();
      if (before === here && turns >= 4) {
        const point = pointIn(element);
        if (point.x !== undefined) return { state: 'ok', x: point.x, y: point.y, next, download: closest(element, 'a[download][href]') !== null };
        state = point.cover ? { state: 'covered', cover: describe(point.cover) } : { state: 'hidden' };
        scrollIntoView(element, { block: 'center', inline: 'center', behavior: 'instant' });
        before = null;
      } else if (before !== here) { if (before !== null) state = { state: 'moving' }; before = here; turns = 0; }
    }
    if (performance.now() > deadline) return { ...state, next };
    turns += (await frameTurn()) ? 4 : 1;
  }
}
// Where a point of a frame's content is in this document, and what covers it there. The frame's element may be scaled or zoomed.
function frameOffset(options) {
  next = Math.max(next, options.next);
  const element = nodeOf(options.ref);
  if (element === null) return { gone: true, next };
  const rect = boundingRect(element), style = styleOf(element);
  const across = rect.width / (element.offsetWidth || 1), down = rect.height / (element.offsetHeight || 1);
  const x = rect.left + (element.clientLeft + parseFloat(style.paddingLeft) + options.x) * across;
  const y = rect.top + (element.clientTop + parseFloat(style.paddingTop) + options.y) * down;
  const hit = deepFromPoint(x, y);
  const cover = hit === element ? null : describe(hit);
  return { x, y, cover, next };
}
function bringIntoView(options) {
  const element = nodeOf(options.ref);
  if (element === null) return false;
  const rect = boundingRect(element);
  if (rect.top < 0 || rect.bottom > innerHeight || rect.left < 0 || rect.right > innerWidth) scrollIntoView(element, { block: 'center', inline: 'center', behavior: 'instant' });
  return true;
}
// The rectangle of an element, in the coordinates of the whole page.
function box(options) {
  const element = nodeOf(options.ref);
  if (element === null) return null;
  scrollIntoView(element, { block: 'nearest', inline: 'nearest', behavior: 'instant' });
  const rect = boundingRect(element);
  return { x: rect.x + scrollX, y: rect.y + scrollY, width: rect.width, height: rect.height };
}
