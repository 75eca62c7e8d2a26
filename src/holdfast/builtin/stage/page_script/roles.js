// The role of an element: an ARIA role, or `frame`, `file`, `canvas`, `video`, `audio` or `clickable`.

const KNOWN = new Set(('alert alertdialog article banner blockquote button cell checkbox code columnheader combobox complementary ' +
  'contentinfo definition dialog document feed figure form grid gridcell group heading img link list listbox listitem log main ' +
  'marquee math menu menubar menuitem menuitemcheckbox menuitemradio meter navigation note option progressbar radio radiogroup ' +
  'region row rowgroup rowheader scrollbar search searchbox separator slider spinbutton status switch tab table tablist tabpanel ' +
  'term textbox timer toolbar tooltip tree treegrid treeitem application').split(' '));
// Elements that a user can act on.
const ACTIVE = new Set(('button checkbox combobox link menuitem menuitemcheckbox menuitemradio option radio searchbox slider ' +
  'spinbutton switch tab textbox treeitem clickable scrollbar file canvas video audio').split(' '));
// Elements whose name is their content, unless the author gave them one.
const FROM_CONTENT = new Set(('button cell checkbox columnheader gridcell heading link menuitem menuitemcheckbox menuitemradio ' +
  'option radio rowheader switch tab tooltip treeitem clickable').split(' '));
// Elements that group others: they have a line, and the lines of their content are indented.
const CONTAINERS = new Set(('alertdialog alert banner complementary contentinfo dialog feed form grid list listbox log main menu menubar ' +
  'navigation radiogroup region search table tablist tabpanel toolbar tree treegrid group article status').split(' '));
// The roles of `<input>` by type, and of other elements by tag.
const INPUTS = {
  button: 'button', submit: 'button', reset: 'button', image: 'button', checkbox: 'checkbox', radio: 'radio', range: 'slider',
  number: 'spinbutton', search: 'searchbox', file: 'file', hidden: '', color: 'textbox',
};
const TAGS = {
  button: 'button', select: 'combobox', textarea: 'textbox', summary: 'button', details: 'group', dialog: 'dialog',
  h1: 'heading', h2: 'heading', h3: 'heading', h4: 'heading', h5: 'heading', h6: 'heading', iframe: 'frame', frame: 'frame',
  img: 'img', nav: 'navigation', main: 'main', aside: 'complementary', article: 'article', ul: 'list', ol: 'list', menu: 'list',
  li: 'listitem', table: 'table', tr: 'row', td: 'cell', th: 'columnheader', progress: 'progressbar', meter: 'meter', fieldset: 'group',
  canvas: 'canvas', video: 'video', audio: 'audio', search: 'search', math: 'math', output: 'status', figure: 'figure',
};
const SKIPPED = new Set(['script', 'style', 'template', 'noscript', 'head', 'title', 'meta', 'link', 'base', 'colgroup', 'col', 'datalist', 'source', 'track', 'param', 'map']);
// Elements that SVG and MathML do not draw, or not as text.
const SVG_SKIPPED = new Set(['script', 'style', 'title', 'desc', 'metadata', 'defs', 'symbol', 'clipPath', 'mask', 'pattern', 'marker', 'filter', 'linearGradient', 'radialGradient', 'annotation', 'annotation-xml']);

function roleOf(element, tag) {
  const given = getAttribute(element, 'role');
  if (given !== null) {
    for (const word of given.slice(0, 200).toLowerCase().split(/\s+/)) {
      if (word === 'none' || word === 'presentation') return '';
      if (word === 'image') return 'img';
      if (KNOWN.has(word)) return word;
    }
  }
  if (namespaceURI(element) !== HTML) return tag === 'svg' ? 'img' : tag === 'a' ? 'link' : '';
  switch (tag) {
    case 'a': case 'area': return hasAttribute(element, 'href') ? 'link' : '';
    case 'input': return INPUTS[element.type] ?? 'textbox';
    case 'select': return element.multiple || element.size > 1 ? 'listbox' : 'combobox';
    case 'header': case 'footer':
      return closest(element, 'article,aside,main,nav,section') ? '' : tag === 'header' ? 'banner' : 'contentinfo';
    case 'section': return hasAttribute(element, 'aria-label') || hasAttribute(element, 'aria-labelledby') ? 'region' : '';
    case 'form': return hasAttribute(element, 'aria-label') || hasAttribute(element, 'aria-labelledby') || hasAttribute(element, 'name') ? 'form' : '';
    case 'label': { const control = standsFor(element, tag); return control === null ? '' : roleOf(control, 'input'); }
    case 'summary': { const parent = parentNode(element); return parent && nodeType(parent) === 1 && localName(parent) === 'details' ? 'button' : ''; }
    default: return Object.hasOwn(TAGS, tag) ? TAGS[tag] : '';
  }
}
