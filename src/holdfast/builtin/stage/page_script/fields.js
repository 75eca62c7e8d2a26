// Fields of forms.

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
    if (['date', 'time', 'datetime-local', 'month', 'week', 'range', 'color'].includes(element.type)) return { kind: 'set' };
    if (['button', 'submit', 'reset', 'image', 'hidden'].includes(element.type)) return { kind: 'none' };
    return element.readOnly ? { kind: 'disabled' } : { kind: 'text', secret: isSecret(element) };
  }
  if (element instanceof HTMLTextAreaElement) return element.readOnly ? { kind: 'disabled' } : { kind: 'text' };
  if (element instanceof HTMLElement && isContentEditable(element)) return { kind: 'editable' };
  const role = getAttribute(element, 'role');
  if (['checkbox', 'radio', 'switch', 'menuitemcheckbox'].includes(role)) return { kind: 'check', checked: isTrue(element, 'aria-checked') };
  return { kind: 'none' };
}
function focusField(options) {
  const element = nodeOf(options.ref);
  if (element === null) return false;
  const hadFocus = deepActive() === element;
  focusElement(element);
  const isInput = element instanceof HTMLInputElement || element instanceof HTMLTextAreaElement;
  if (options.select) {
    if (isInput) element.select();
    else getSelection().selectAllChildren(element);
  } else if (options.caret === 'end' || !hadFocus) {  // a field that has the focus may keep what is selected in it
    if (isInput) {
      try { element.setSelectionRange(element.value.length, element.value.length); } catch { /* a kind without a selection */ }
    } else if (element instanceof HTMLElement && isContentEditable(element)) {
      const selection = getSelection();
      selection.selectAllChildren(element);
      selection.collapseToEnd();
    }
  }
  const active = deepActive();
  return active !== null && (active === element || flatContains(element, active) || flatContains(active, element));
}
function setField(options) {
  const element = nodeOf(options.ref);
  if (element === null) return null;
  const proto = element instanceof HTMLTextAreaElement ? HTMLTextAreaElement.prototype : HTMLInputElement.prototype;
  Object.getOwnPropertyDescriptor(proto, 'value').set.call(element, options.value);
  element.dispatchEvent(new Event('input', { bubbles: true, composed: true }));
  element.dispatchEvent(new Event('change', { bubbles: true }));
  return element.value;
}
function choose(options) {
  const element = nodeOf(options.ref);
  if (element === null) return null;
  const wanted = new Set(options.values);
  const all = [...element.options];
  const chosen = all.filter((option) => wanted.has(option.value) || wanted.has(option.label.trim()) || wanted.has(option.textContent.trim()));
  const missing = [...wanted].filter((value) => !all.some((option) => option.value === value || option.label.trim() === value || option.textContent.trim() === value));
  const disabled = chosen.some((option) => option.disabled);
  if (missing.length || disabled || (!element.multiple && chosen.length !== 1)) {
    return { missing: missing.map((value) => clean(value, 80)), disabled, options: all.slice(0, 30).map((option) => clean(option.label, 60)), more: Math.max(0, all.length - 30) };
  }
  for (const option of all) option.selected = chosen.includes(option);
  element.dispatchEvent(new Event('input', { bubbles: true, composed: true }));
  element.dispatchEvent(new Event('change', { bubbles: true }));
  return { chosen: chosen.length };
}
function shownValue(options) {
  const element = nodeOf(options.ref);
  if (element === null) return null;
  const raw = element instanceof HTMLInputElement || element instanceof HTMLTextAreaElement ? element.value : textContent(element) ?? '';
  return { same: options.expected === undefined ? null : raw === options.expected || raw.replace(/\s+/g, ' ').trim() === options.expected.replace(/\s+/g, ' ').trim() };
}
