// Texts of a page, without characters that cannot be seen, and without anything that looks like a ref.

const CONTROL = /[\p{Cc}\p{Z}]+/gu;
const FORMATTING = /[\p{Cf}\p{Co}\p{Cn}]/gu;  // direction marks, tag characters, and characters that Unicode does not define
const visible = (text) => text.replace(FORMATTING, '').replace(INVISIBLE_LETTERS, '');
const LIKE_REF = /\[(\s*(?:t\s*\d+\s*)?e\s*\d+\s*)\]/gi;
// A text as one line of at most `limit` characters.
function clean(text, limit) {
  const part = text.length > limit * 4 ? text.slice(0, limit * 4) : text;
  const plain = visible(part).replace(CONTROL, ' ').replace(LIKE_REF, '($1)').trim().toWellFormed();
  if (plain.length > limit) return plain.slice(0, limit).toWellFormed() + `… (+${text.length - limit})`;
  return part.length < text.length ? plain + `… (+${text.length - part.length})` : plain;
}
// About the first `limit` characters of a node's text.
function textOf(node, limit) {
  if (nodeType(node) === 3) return node.data.slice(0, limit);
  let text = '', count = 0;
  const walker = textWalker(node);
  for (let child = walker.nextNode(); child !== null && text.length < limit && count < 2000; child = walker.nextNode(), count++) {
    if (nodeType(child) === 3) {
      const name = parentNode(child) && nodeType(parentNode(child)) === 1 ? localName(parentNode(child)) : '';
      if (name !== 'script' && name !== 'style') text += child.data.slice(0, limit);
    } else if (localName(child) === 'img') text += ' ' + (getAttribute(child, 'alt') ?? '') + ' ';
    else if (BLOCK_TAGS.has(localName(child))) text += ' ';
  }
  return text;
}
const textWalker = (node) => createTreeWalker(document, node, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
const BLOCK_TAGS = new Set(['div', 'p', 'br', 'li', 'td', 'th', 'tr', 'section', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6']);
