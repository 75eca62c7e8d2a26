// Fields of forms.

// How to set a field (`kind`): check or uncheck it, choose options, set its value at once (`set`), replace its text (`text`, `editable`), or give it files.
// The other kinds say why it cannot be set: `gone`, `hidden`, `disabled`, and `none` for an element that is not a field.
function field(options) {
  const element = nodeOf(options.ref);
  if (element === null) return { kind: 'gone' };
  const control = standsFor(element, localName(element));
  if (control !== null) return isDisabled(control) ? { kind: 'disabled' } : { kind: 'check', checked: control.checked };
  if (!isVisible(element) && !(element instanceof HTMLInputElement && element.type === 'file')) return { kind: 'hidden' };
  if (isDisabled(element)) return { kind: 'disabled' };
  if (element instanceof HTMLSelectElement) return { kind: 'select' };
  if (element instanceof HTMLInputElement) {
    if (element.type === 'checkbox' || element.type === 'radio') return { kind: 'check', checked: element.checked };
    if (element.type === 'file') return { kind: 'file', multiple: element.multiple };
    if (['button', 'submit', 'reset', 'image', 'hidden'].includes(element.type)) return { kind: 'none' };
    if (['range', 'color'].includes(element.type)) return { kind: 'set' };
    if (['date', 'time', 'datetime-local', 'month', 'week'].includes(element.type)) return { kind: element.readOnly ? 'disabled' : 'set' };
    return element.readOnly ? { kind: 'disabled' } : { kind: 'text', secret: isSecret(element) };
  }
  if (element instanceof HTMLTextAreaElement) return element.readOnly ? { kind: 'disabled' } : { kind: 'text' };
  if (element instanceof HTMLElement && isContentEditable(element)) return { kind: 'editable' };
  const role = getAttribute(element, 'role');
  if (['checkbox', 'radio', 'switch', 'menuitemcheckbox'].includes(role)) return { kind: 'check', checked: isTrue(element, 'aria-checked') };
  return { kind: 'none' };
}
// Focus an element; select its content, or put the caret at its end. Return whether it has the focus now.
function focusField(options) {
  const element = nodeOf(options.ref);
  if (element === null) return false;
  const hadFocus = deepActive() === element;
  focusElement(element);
  const isInput = element instanceof HTMLInputElement || element instanceof HTMLTextAreaElement;
  if (options.select) {
    if (isInput) element.select();
    else getSelection().selectAllChildren(element);
  } else if (options.caret === 'end' || !hadFocus) {  // otherwise, a field that has the focus keeps its caret and selection
    if (isInput) {
      try { element.setSelectionRange(element.value.length, element.value.length); } catch { /* this type of input has no selection */ }
    } else if (element instanceof HTMLElement && isContentEditable(element)) {
      const selection = getSelection();
      selection.selectAllChildren(element);
      selection.collapseToEnd();
    }
  }
  const active = deepActive();
  return active !== null && (active === element || flatContains(element, active) || flatContains(active, element));
}
// The number of the element that has the focus; -1 if none has.
function focusedRef(options) {
  next = Math.max(next, options.next);
  const element = deepActive();
  return { ref: element === null || ['body', 'html'].includes(localName(element)) ? -1 : refOf(element), next };
}
// Whether the value that a field shows means the wanted value. The two may be written differently, such as #ff0000 and red.
function means(type, wanted, shown) {
  if (shown.toLowerCase() === wanted.toLowerCase()) return true;
  if (type === 'color') return CSS.supports('color', wanted);
  if (type === 'range') return wanted.trim() !== '' && Number(wanted) === Number(shown);
  return shown !== '' && wanted.replace(' ', 'T').startsWith(shown);
}
// Set the value of a field. If the field does not take it, restore the old value, and send the page no event.
function setField(options) {
  const element = nodeOf(options.ref);
  if (element === null) return null;
  const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set;
  const before = element.value;
  set.call(element, options.value);
  const shown = element.value;
  if (!means(element.type, options.value, shown)) {
    set.call(element, before);
    return { taken: false, shown: before };
  }
  element.dispatchEvent(new Event('input', { bubbles: true, composed: true }));
  element.dispatchEvent(new Event('change', { bubbles: true }));
  return { taken: element.value === shown, shown: element.value };
}
const isOptionDisabled = (option) => matches(option, ':disabled');
// Choose the options of a list with these values or labels. If that is not possible, choose nothing, and return the options that can be chosen.
function choose(options) {
  const element = nodeOf(options.ref);
  if (element === null) return null;
  const all = [...element.options];
  const chosen = [], missing = [];
  for (const wanted of new Set(options.values)) {
    const hasLabel = (option) => option.label.trim() === wanted || option.textContent.trim() === wanted;
    const found = all.find((option) => option.value === wanted) ?? all.find(hasLabel);
    if (found === undefined) missing.push(wanted);
    else chosen.push(found);
  }
  if (missing.length || chosen.some(isOptionDisabled) || (!element.multiple && chosen.length !== 1)) {
    const enabled = all.filter((option) => !isOptionDisabled(option));
    return { options: enabled.slice(0, 30).map((option) => clean(option.label, 60)) };
  }
  for (const option of all) option.selected = chosen.includes(option);
  element.dispatchEvent(new Event('input', { bubbles: true, composed: true }));
  element.dispatchEvent(new Event('change', { bubbles: true }));
  return { chosen: chosen.length };
}
// Whether a field shows a text. White space may differ, because rich-text editors turn lines into paragraphs.
function shownValue(options) {
  const element = nodeOf(options.ref);
  if (element === null) return null;
  const plain = (text) => text.replace(/\s+/g, ' ').trim();
  const isInput = element instanceof HTMLInputElement || element instanceof HTMLTextAreaElement;
  const texts = isInput ? [element.value] : [innerText(element), textContent(element) ?? ''];
  return { same: texts.some((text) => plain(text) === plain(options.expected)), shown: isSecret(element) ? '(hidden)' : clean(texts[0], NAME) };
}
