// The states and the value of an element.

const isTrue = (element, name) => getAttribute(element, name) === 'true';
// Whether the field of a label is in the outline, with the label's text as its name.
function isControlShown(label) {
  const control = label.control;
  if (control === null || control === undefined) return false;
  return control.type === 'file' || (clientRects(control).length > 0 && styleOf(control).visibility === 'visible');
}
// For a label: its check box or radio button, if that is hidden, so that the label is shown in its place. Null for every other element.
function standsFor(element, tag) {
  if (tag !== 'label' || namespaceURI(element) !== HTML || isControlShown(element)) return null;
  const control = element.control;
  return control instanceof HTMLInputElement && (control.type === 'checkbox' || control.type === 'radio') ? control : null;
}
// The states that a line shows, such as `disabled` and `checked`. `focused` is the element that has the focus, if that is to be shown.
function statesOf(element, tag, role, focused = null) {
  const control = standsFor(element, tag);
  if (control !== null) return statesOf(control, 'input', role, focused);
  const states = [];
  const isHtml = namespaceURI(element) === HTML;
  if (isDisabled(element)) states.push('disabled');
  const checked = isHtml && tag === 'input' && (element.type === 'checkbox' || element.type === 'radio')
    ? (element.indeterminate ? 'mixed' : String(element.checked)) : getAttribute(element, 'aria-checked');
  if (checked === 'true') states.push('checked');
  else if (checked === 'mixed') states.push('mixed');
  if (isTrue(element, 'aria-selected')) states.push('selected');
  const expanded = isHtml && tag === 'summary' && parentNode(element) instanceof HTMLDetailsElement ? String(parentNode(element).open) : getAttribute(element, 'aria-expanded');
  if (expanded === 'true') states.push('expanded');
  else if (expanded === 'false') states.push('collapsed');
  const pressed = getAttribute(element, 'aria-pressed');
  if (pressed === 'true' || pressed === 'mixed') states.push('pressed');
  const current = getAttribute(element, 'aria-current');
  if (current !== null && current !== 'false' && current !== '') states.push('current');
  if (isHtml && (tag === 'input' || tag === 'select' || tag === 'textarea')) {
    if (element.required) states.push('required');
    if (element.readOnly) states.push('readonly');
    if (matches(element, ':user-invalid')) states.push('invalid');
  } else if (isTrue(element, 'aria-required')) states.push('required');
  const invalid = getAttribute(element, 'aria-invalid');
  if (invalid !== null && invalid !== 'false' && invalid !== '' && !states.includes('invalid')) states.push('invalid');
  if (isHtml && tag === 'dialog' && matches(element, ':modal')) states.push('modal');
  if (element === focused) states.push('focused');
  return states;
}
function isDisabled(element) {
  if (matches(element, ':disabled')) return true;
  for (let node = element, steps = 0; node !== null && steps < 200; node = flatParent(node), steps++) {
    if (nodeType(node) === 1 && (isTrue(node, 'aria-disabled') || hasAttribute(node, 'inert'))) return true;
  }
  return false;
}
// Whether the value of a field is not shown, because it is a password or a code.
function isSecret(element) {
  if (!(element instanceof HTMLInputElement)) return false;
  if (element.type === 'password') secrets.add(element);
  return secrets.has(element) || /password|one-time-code|cc-csc/.test(getAttribute(element, 'autocomplete') ?? '');
}
// The value that a person would see; undefined if the element has none.
function valueOf(element, tag, role) {
  if (namespaceURI(element) === HTML) {
    switch (tag) {
      case 'input':
        if (['checkbox', 'radio', 'button', 'submit', 'reset', 'image', 'hidden'].includes(element.type)) return undefined;
        if (isSecret(element)) return element.value === '' ? '' : '(hidden)';
        if (element.type === 'file') return [...element.files].slice(0, 10).map((file) => file.name).join(', ');
        return element.value;
      case 'textarea': return element.value;
      case 'select': return [...element.selectedOptions].slice(0, 20).map((option) => option.label).join(', ');
      case 'progress': return element.position < 0 ? undefined : `${Math.round(element.position * 100)}%`;
      case 'meter': return String(element.value);
    }
  }
  const text = getAttribute(element, 'aria-valuetext') ?? getAttribute(element, 'aria-valuenow');
  if (text !== null && ['slider', 'spinbutton', 'progressbar', 'meter', 'scrollbar'].includes(role)) return text;
  if (role === 'textbox' || role === 'searchbox' || role === 'combobox') return textOf(element, TEXT * 2);
  return undefined;
}
function optionsOf(select) {
  const options = [...select.options].slice(0, 12).map((option) => clean(option.label, 40) + (matches(option, ':disabled') ? ' (disabled)' : ''));
  const more = select.options.length - options.length;
  return ` (options: ${options.join(' | ')}${more > 0 ? ` | +${more}` : ''})`;
}
// The element that has the focus, also inside shadow roots.
function deepActive() {
  let element = activeElement(document);
  while (element !== null && shadowOf(element) !== null && shadowActive(shadowOf(element)) !== null) element = shadowActive(shadowOf(element));
  return element;
}
