// The name of an element, as assistive technology would say it.

// The text of the elements with these ids, for aria-labelledby.
function byIds(element, ids) {
  const root = getRootNode(element);
  const found = ids.slice(0, 500).split(/\s+/).slice(0, 8).map((id) => (root instanceof ShadowRoot ? root.getElementById(id) : getElementById(document, id)));
  return found.filter((other) => other !== null).map((other) => textOf(other, NAME * 2)).join(' ');
}
// The name that the page's author gave an element by an attribute or a label, without the element's own content.
function givenName(element, tag, role) {
  const labelledby = getAttribute(element, 'aria-labelledby');
  if (labelledby) { const text = byIds(element, labelledby); if (text.trim()) return text; }
  const label = getAttribute(element, 'aria-label');
  if (label && label.trim()) return label;
  if (namespaceURI(element) !== HTML) {
    const title = tag === 'svg' ? querySelector(element, ':scope > title') : null;
    return title === null ? '' : textOf(title, NAME);
  }
  switch (tag) {
    case 'input': case 'select': case 'textarea': case 'meter': case 'progress': case 'output': {
      if (tag === 'input' && ['submit', 'reset', 'button'].includes(element.type)) {
        return element.value || { submit: 'Submit', reset: 'Reset' }[element.type] || getAttribute(element, 'title') || '';
      }
      if (tag === 'input' && element.type === 'image') return getAttribute(element, 'alt') || getAttribute(element, 'title') || 'Submit';
      const labels = element.labels;
      if (labels !== null && labels !== undefined && labels.length) {
        const text = [...labels].slice(0, 4).map((other) => labelText(other, element)).join(' ');
        if (text.trim()) return text;
      }
      return getAttribute(element, 'title') || getAttribute(element, 'placeholder') || '';
    }
    case 'img': case 'area': return getAttribute(element, 'alt') ?? getAttribute(element, 'title') ?? '';
    case 'fieldset': { const legend = querySelector(element, ':scope > legend'); return legend ? textOf(legend, NAME) : ''; }
    case 'table': { const caption = querySelector(element, ':scope > caption'); return caption ? textOf(caption, NAME) : ''; }
    case 'figure': { const caption = querySelector(element, ':scope > figcaption'); return caption ? textOf(caption, NAME) : ''; }
    case 'iframe': case 'frame': return getAttribute(element, 'title') || getAttribute(element, 'name') || '';
    default: return FROM_CONTENT.has(role) ? '' : getAttribute(element, 'title') ?? '';
  }
}
// The text of a label, without the text of its control.
function labelText(label, control) {
  let text = '', count = 0;
  const walker = textWalker(label);
  for (let node = walker.nextNode(); node !== null && text.length < NAME * 2 && count < 500; node = walker.nextNode(), count++) {
    if (nodeType(node) === 3 && !contains(control, node)) {
      const parent = parentNode(node);
      if (nodeType(parent) === 1 && !['script', 'style', 'option'].includes(localName(parent)) && styleOf(parent).display !== 'none') text += node.data.slice(0, NAME * 2);
    } else if (nodeType(node) === 1 && localName(node) === 'img') text += ' ' + (getAttribute(node, 'alt') ?? '');
  }
  return text;
}
