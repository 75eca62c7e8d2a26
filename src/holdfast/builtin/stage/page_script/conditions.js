// The functions for the tools `wait` and `expect`, and for waiting until a page is quiet.

// The facts about an element that a condition is compared with.
function facts(options) {
  const element = nodeOf(options.ref);
  if (element === null) return { exists: false };
  const tag = localName(element), role = roleOf(element, tag) || tag;
  const value = valueOf(element, tag, role);
  const states = statesOf(element, tag, role, deepActive());
  const visible = isVisible(element);
  const text = visible && element instanceof HTMLElement ? innerText(element) : textOf(element, 20000);
  return {
    exists: true, visible, enabled: !states.includes('disabled'), checked: states.includes('checked'), states, focused: states.includes('focused'),
    value: value === undefined ? null : clean(value, 2000), text: clean(text, 4000), role, name: clean(givenName(element, tag, role) || textOf(element, 400), 400),
  };
}
// Whether the page, or an element, shows a text.
function hasText(options) {
  next = options.next;
  const root = rootOf(options.within);
  if (root === null) return { gone: true, next };
  const wanted = options.text.toLowerCase();
  const outlined = outline(root, { withoutRefs: true, ms: options.ms });
  const isFound = outlined.texts.some((_, i) => wordsOf(outlined, i).toLowerCase().includes(wanted)) || (outlined.cut && elementsWith(root, wanted, 1).length > 0);
  return { found: isFound, frames: framesOf(outlined), next, cut: unread(outlined) };
}
function ready() { return { url: clean(location.href, 2000), title: clean(titleOf(document), 300), state: document.readyState }; }
const getAnimations = method(Document.prototype, 'getAnimations');
// Wait until transitions that end soon have ended: an element that fades in is not visible yet, and one that moves cannot be hit.
async function endOfTransitions(ms) {
  const ends = [];
  for (const animation of getAnimations(document).slice(0, 100)) {
    const end = animation.effect?.getComputedTiming().endTime;
    if (animation.playState === 'running' && typeof end === 'number' && end <= 2 * ms) ends.push(animation.finished.catch(() => 0));
  }
  if (ends.length) await Promise.race([Promise.all(ends), new Promise((resolve) => setTimeout(resolve, ms))]);
}
// Wait until the page has not changed for `quiet` milliseconds, but at most for `ms`.
async function settle(options) {
  await frameTurn();
  await endOfTransitions(options.ms);
  await new Promise((resolve) => {
    let quiet = setTimeout(resolve, options.quiet);
    const observer = new MutationObserver(() => { clearTimeout(quiet); quiet = setTimeout(done, options.quiet); });
    const root = documentElement(document);
    if (root) observer.observe(root, { subtree: true, childList: true, attributes: true, characterData: true });
    const end = setTimeout(done, options.ms);
    function done() { observer.disconnect(); clearTimeout(quiet); clearTimeout(end); resolve(); }
    clearTimeout(quiet);
    quiet = setTimeout(done, options.quiet);
  });
  return true;
}
