// What reads and checks a page. It runs in an isolated world of every document: the page's scripts can neither see it nor
// change what it uses. Forms and documents show elements under their names (`form.firstChild` may be an input with that
// name), so every property of a node is read through the getter of its prototype.
(() => {
  'use strict';
  if (globalThis.stage) return;

  const getter = (proto, name) => {
    const get = Object.getOwnPropertyDescriptor(proto, name).get;
    return (object) => get.call(object);
  };
  const method = (proto, name) => {
    const call = proto[name];
    return (object, ...values) => call.apply(object, values);
  };
  const NodeP = Node.prototype, ElementP = Element.prototype, HtmlP = HTMLElement.prototype;
  const nodeType = getter(NodeP, 'nodeType'), firstChild = getter(NodeP, 'firstChild');
  const nextSibling = getter(NodeP, 'nextSibling'), parentNode = getter(NodeP, 'parentNode');
  const textContent = getter(NodeP, 'textContent'), isConnected = getter(NodeP, 'isConnected');
  const getRootNode = method(NodeP, 'getRootNode'), contains = method(NodeP, 'contains');
  const localName = getter(ElementP, 'localName'), openRoot = getter(ElementP, 'shadowRoot');
  const namespaceURI = getter(ElementP, 'namespaceURI');
  const getAttribute = method(ElementP, 'getAttribute'), hasAttribute = method(ElementP, 'hasAttribute');
  const matches = method(ElementP, 'matches'), closest = method(ElementP, 'closest');
  const clientRects = method(ElementP, 'getClientRects'), boundingRect = method(ElementP, 'getBoundingClientRect');
  const checkVisibility = method(ElementP, 'checkVisibility');
  const scrollIntoView = method(ElementP, 'scrollIntoView'), querySelector = method(ElementP, 'querySelector');
  const assignedSlot = (node) => (nodeType(node) === 1 ? getter(ElementP, 'assignedSlot') : getter(Text.prototype, 'assignedSlot'))(node);
  const innerText = getter(HtmlP, 'innerText'), focusElement = method(HtmlP, 'focus');
  const isContentEditable = getter(HtmlP, 'isContentEditable');
  const activeElement = getter(Document.prototype, 'activeElement');
  const documentElement = getter(Document.prototype, 'documentElement');
  const getElementById = method(Document.prototype, 'getElementById');
  const elementsByTag = method(Document.prototype, 'getElementsByTagName');
  const elementFromPoint = method(Document.prototype, 'elementFromPoint');
  const shadowElementFromPoint = method(ShadowRoot.prototype, 'elementFromPoint');
  const shadowActive = getter(ShadowRoot.prototype, 'activeElement');
  const titleOf = getter(Document.prototype, 'title');
  const styleOf = globalThis.getComputedStyle.bind(globalThis);
  const HTML = 'http://www.w3.org/1999/xhtml';

  const NAME = 160, TEXT = 500, MAX_NODES = 400000, MAX_LINES = 200000, MAX_DEPTH = 60;

  const nodes = new Map();        // number -> WeakRef of a node
  const numbers = new WeakMap();  // node -> number
  const closedRoots = new WeakMap();
  const secrets = new WeakSet();  // fields that have been password fields
  const removed = new FinalizationRegistry((number) => nodes.delete(number));
  let next = 0;

  function refOf(node) {
    let number = numbers.get(node);
    if (number === undefined) {
      number = next++;
      numbers.set(node, number);
      nodes.set(number, new WeakRef(node));
      removed.register(node, number);
    }
    return number;
  }
  function nodeOf(number) {
    const node = nodes.get(number)?.deref();
    return node !== undefined && isConnected(node) ? node : null;
  }
  const shadowOf = (element) => openRoot(element) ?? closedRoots.get(element) ?? null;
  function flatParent(node) {
    const parent = parentNode(node);
    if (parent === null) return null;
    if (parent instanceof ShadowRoot) return parent.host;
    if (nodeType(parent) === 1 && shadowOf(parent) !== null) {
      const slot = assignedSlot(node);
      return slot ?? parent;
    }
    return parent;
  }
  function flatContains(outer, inner) {
    for (let node = inner, steps = 0; node !== null && steps < 10000; node = flatParent(node), steps++) {
      if (node === outer) return true;
    }
    return false;
  }

  // Texts.
  const CONTROL = /[\u0000-\u0020\u007f-\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/g;
  const INVISIBLE = /[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|\udb40[\udc00-\udfff]/g;
  const LIKE_REF = /\[(\s*(?:t\s*\d+\s*)?e\s*\d+\s*)\]/gi;
  function clean(text, limit) {
    const part = text.length > limit * 4 ? text.slice(0, limit * 4) : text;
    const plain = part.replace(INVISIBLE, '').replace(CONTROL, ' ').replace(LIKE_REF, '($1)').trim().toWellFormed();
    if (plain.length > limit) return plain.slice(0, limit).toWellFormed() + `… (+${text.length - limit})`;
    return part.length < text.length ? plain + `… (+${text.length - part.length})` : plain;
  }
  function textOf(node, limit) {
    if (nodeType(node) === 3) return node.data.slice(0, limit);
    let text = '', count = 0;
    const walker = document_createTreeWalker(node);
    for (let child = walker.nextNode(); child !== null && text.length < limit && count < 2000; child = walker.nextNode(), count++) {
      if (nodeType(child) === 3) {
        const name = parentNode(child) && nodeType(parentNode(child)) === 1 ? localName(parentNode(child)) : '';
        if (name !== 'script' && name !== 'style') text += child.data.slice(0, limit);
      } else if (localName(child) === 'img') text += ' ' + (getAttribute(child, 'alt') ?? '') + ' ';
      else if (BLOCK_TAGS.has(localName(child))) text += ' ';
    }
    return text;
  }
  const createTreeWalker = method(Document.prototype, 'createTreeWalker');
  const document_createTreeWalker = (node) => createTreeWalker(document, node, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
  const BLOCK_TAGS = new Set(['div', 'p', 'br', 'li', 'td', 'th', 'tr', 'section', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6']);

  // Roles.
  const KNOWN = new Set(('alert alertdialog article banner blockquote button cell checkbox code columnheader combobox complementary ' +
    'contentinfo definition dialog document feed figure form grid gridcell group heading img link list listbox listitem log main ' +
    'marquee math menu menubar menuitem menuitemcheckbox menuitemradio meter navigation note option progressbar radio radiogroup ' +
    'region row rowgroup rowheader scrollbar search searchbox separator slider spinbutton status switch tab table tablist tabpanel ' +
    'term textbox timer toolbar tooltip tree treegrid treeitem application').split(' '));
  const ACTIVE = new Set(('button checkbox combobox link menuitem menuitemcheckbox menuitemradio option radio searchbox slider ' +
    'spinbutton switch tab textbox treeitem clickable scrollbar file canvas video audio').split(' '));
  const FROM_CONTENT = new Set(('button cell checkbox columnheader gridcell heading link menuitem menuitemcheckbox menuitemradio ' +
    'option radio rowheader switch tab tooltip treeitem clickable').split(' '));
  const CONTAINERS = new Set(('alertdialog alert banner complementary contentinfo dialog feed form grid list listbox log main menu menubar ' +
    'navigation radiogroup region search table tablist tabpanel toolbar tree treegrid group article status').split(' '));
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
      case 'summary': { const parent = parentNode(element); return parent && nodeType(parent) === 1 && localName(parent) === 'details' ? 'button' : ''; }
      default: return Object.hasOwn(TAGS, tag) ? TAGS[tag] : '';
    }
  }

  function byIds(element, ids) {
    const root = getRootNode(element);
    const found = ids.slice(0, 500).split(/\s+/).slice(0, 8).map((id) => (root instanceof ShadowRoot ? root.getElementById(id) : getElementById(document, id)));
    return found.filter((other) => other !== null).map((other) => textOf(other, NAME * 2)).join(' ');
  }
  // The name that the author gave, without the element's own content.
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
  function labelText(label, control) {
    let text = '', count = 0;
    const walker = document_createTreeWalker(label);
    for (let node = walker.nextNode(); node !== null && text.length < NAME * 2 && count < 500; node = walker.nextNode(), count++) {
      if (nodeType(node) === 3 && !contains(control, node)) {
        const parent = parentNode(node);
        if (nodeType(parent) === 1 && !['script', 'style', 'option'].includes(localName(parent)) && styleOf(parent).display !== 'none') text += node.data.slice(0, NAME * 2);
      } else if (nodeType(node) === 1 && localName(node) === 'img') text += ' ' + (getAttribute(node, 'alt') ?? '');
    }
    return text;
  }

  const isTrue = (element, name) => getAttribute(element, name) === 'true';
  function statesOf(element, tag, role, focused = null) {
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
      if (nodeType(node) === 1 && isTrue(node, 'aria-disabled')) return true;
    }
    return false;
  }
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
    const options = [...select.options].slice(0, 12).map((option) => clean(option.label, 40));
    const more = select.options.length - options.length;
    return ` (options: ${options.join(' | ')}${more > 0 ? ` | +${more}` : ''})`;
  }
  function deepActive() {
    let element = activeElement(document);
    while (element !== null && shadowOf(element) !== null && shadowActive(shadowOf(element)) !== null) element = shadowActive(shadowOf(element));
    return element;
  }

  // The outline. `depths`, `refs`, `texts` and `kinds` are one line each: kind 0 is text of the page, 1 is an element.
  function outline(root, options) {
    const depths = [], refs = [], texts = [], kinds = [];
    const numberOf = options.withoutRefs ? () => -1 : refOf;
    const focused = deepActive();  // shown even if it is hidden from assistive technology
    let text = '', textOwner = null, visited = 0, cut = false, suspects = 0;
    const frames = [];
    const emit = (depth, ref, line, kind) => { depths.push(Math.min(depth, MAX_DEPTH)); refs.push(ref); texts.push(line); kinds.push(kind); };
    const flush = (depth) => {
      if (text === '') return;
      const line = clean(text, TEXT);
      if (line !== '') emit(depth, options.refText || line.includes('… (+') ? numberOf(textOwner) : -1, line, 0);
      text = ''; textOwner = null;
    };
    const drop = (from) => { depths.length = refs.length = texts.length = kinds.length = from; };
    const onlyText = (from) => { for (let i = from; i < kinds.length; i++) if (kinds[i] !== 0) return false; return true; };
    const joined = (from, separator) => {
      let all = '';
      for (let i = from; i < texts.length && all.length < TEXT * 4; i++) if (texts[i] !== '') all += (all ? separator : '') + texts[i];
      return all;
    };
    const stack = [];
    const enter = (element, depth, state) => stack.push({ element, depth, child: undefined, list: null, index: 0, ...state });
    enter(root, 0, { root: true, hidden: false, faint: false, label: false, pointer: false, start: 0, role: '' });

    while (stack.length) {
      const frame = stack[stack.length - 1];
      // The next child, in the order in which it is shown.
      let child;
      if (frame.child === undefined) {
        const element = frame.element;
        const shadow = nodeType(element) === 1 ? shadowOf(element) : null;
        if (shadow !== null) child = firstChild(shadow);
        else if (nodeType(element) === 1 && localName(element) === 'slot' && element.assignedNodes().length) { frame.list = element.assignedNodes(); child = frame.list[0]; frame.index = 1; }
        else child = firstChild(element);
      } else if (frame.list !== null) child = frame.index < frame.list.length ? frame.list[frame.index++] : null;
      else child = nextSibling(frame.child);
      if (child === null || child === undefined || frame.skipChildren) { stack.pop(); leave(frame); continue; }
      frame.child = child;
      if (frame.tag === 'details' && !frame.element.open && !(nodeType(child) === 1 && localName(child) === 'summary')) continue;
      const type = nodeType(child);
      if (type === 3) {
        if (!frame.hidden && !frame.faint && !frame.label) {
          if (text.length < TEXT * 8) {
            const data = child.data;
            if (data.length > TEXT * 8 ? true : /\S/.test(data)) { if (textOwner === null) textOwner = frame.element; text += data; }
            else if (text !== '') text += ' ';
          } else text += ' ';
        }
        continue;
      }
      if (type !== 1) continue;
      if (++visited > MAX_NODES || texts.length > MAX_LINES) { cut = true; break; }
      visit(child, frame);
    }
    flush(0);
    return { depths, refs, texts, kinds, frames, visited, cut, suspects };

    function visit(element, parent) {
      const tag = localName(element);
      const isHtml = namespaceURI(element) === HTML;
      if (isHtml && SKIPPED.has(tag)) return;
      const style = styleOf(element);
      const display = style.display;
      if (display === 'none' && !(isHtml && tag === 'area')) return;
      if (isTrue(element, 'aria-hidden') && element !== focused) return;
      const hidden = style.visibility !== 'visible';
      const faint = parent.faint || style.opacity === '0';
      const isBlock = !(display === 'inline' || display === 'contents' || display === 'inline-block');
      if (isBlock || (isHtml && tag === 'br')) flush(parent.depth);
      if (style.contentVisibility === 'hidden') return;
      let role = roleOf(element, tag);
      const shadow = shadowOf(element);
      if (shadow === null && isHtml) {
        if (tag.includes('-')) suspects++;
        else if (firstChild(element) === null && (tag === 'div' || tag === 'span' || tag === 'section' || tag === 'p' || tag === 'article') && clientRects(element).length) suspects++;
      }
      const pointer = style.cursor === 'pointer';
      const editable = isHtml && role === '' && isContentEditable(element) && !(nodeType(parent.element) === 1 && parent.editable);
      if (editable) role = 'textbox';
      if (role === '' && !hidden && isHtml && tag !== 'label' && tag !== 'body' && tag !== 'html' &&
          ((pointer && !parent.pointer) || hasAttribute(element, 'onclick') || (hasAttribute(element, 'tabindex') && element.tabIndex >= 0))) role = 'clickable';
      const isLabel = isHtml && ((tag === 'label' && element.control !== null && element.control !== undefined) ||
        ((tag === 'legend' || tag === 'caption' || tag === 'figcaption') && parent.named));  // its text is shown as a name already
      const base = { hidden, faint, label: parent.label || isLabel, pointer, editable: editable || parent.editable, isBlock, start: texts.length, role: '', tag };
      if (hidden && role !== '') role = '';
      if (role === '' || (faint && !ACTIVE.has(role)) || (role === 'img' && isHtml && getAttribute(element, 'alt') === '')) {
        if (role === 'img' && !isHtml) return;
        enter(element, parent.depth, base);
        return;
      }
      if (role === 'clickable' && parent.label) role = '';
      const isField = isHtml && (tag === 'input' || tag === 'select' || tag === 'textarea');
      const name = clean(givenName(element, tag, role), NAME);
      if (role === 'img' || role === 'separator') {
        if (role === 'separator' || (name === '' && !isHtml)) return;
        if (name === '') return;
        flush(parent.depth);
        emit(parent.depth, options.refText ? numberOf(element) : -1, parent.nameless ? name : `img ${name}`, parent.nameless ? 0 : 1);
        return;
      }
      if ((role === 'listitem' || role === 'row' || role === 'cell' || role === 'columnheader' || role === 'gridcell' || role === 'rowheader' || role === 'heading') || role === '') {
        flush(parent.depth);
        base.start = texts.length;
        const ref = hasAttribute(element, 'onclick') || (hasAttribute(element, 'tabindex') && element.tabIndex >= 0) || (pointer && !parent.pointer) || options.refAll ? numberOf(element) : -1;
        if (role !== '') emit(parent.depth, ref, '', 1);
        enter(element, parent.depth + (role === '' ? 0 : 1), { ...base, role, name, ref, label: false, states: role === '' ? [] : statesOf(element, tag, role) });
        return;
      }
      if (CONTAINERS.has(role) && !ACTIVE.has(role) && !(isField)) {
        flush(parent.depth);
        base.start = texts.length;
        const states = statesOf(element, tag, role);
        emit(parent.depth, numberOf(element), line(role, states, name), 1);
        enter(element, parent.depth + 1, { ...base, role, container: true, name, named: name !== '' });
        return;
      }
      if (role === 'frame') {
        flush(parent.depth);
        frames.push(texts.length);
        emit(parent.depth, numberOf(element), line('frame', [], name), 1);
        return;
      }
      if (!ACTIVE.has(role)) {  // a role that only groups or describes
        flush(parent.depth);
        base.start = texts.length;
        const value = valueOf(element, tag, role);
        if (name !== '' || value !== undefined) emit(parent.depth, options.refAll ? numberOf(element) : -1, line(role, [], name) + (value === undefined ? '' : ` = ${clean(value, NAME)}`), 1);
        enter(element, parent.depth + (name !== '' || value !== undefined ? 1 : 0), base);
        return;
      }
      flush(parent.depth);
      base.start = texts.length;
      const states = statesOf(element, tag, role);
      const value = valueOf(element, tag, role);
      const isLeaf = isField || editable || role === 'canvas' || role === 'video' || role === 'audio';
      if (isLeaf) {
        let written = line(role, states, name);
        if (value !== undefined && value !== '') written += ` = ${clean(value, NAME)}`;
        if (isHtml && tag === 'select') written += optionsOf(element);
        emit(parent.depth, numberOf(element), written, 1);
        return;
      }
      emit(parent.depth, numberOf(element), '', 1);
      enter(element, parent.depth + 1, { ...base, role, name, states, value, active: true, nameless: name === '', label: false });
    }

    function line(role, states, name) {
      return (states.length ? `${role}(${states.join(' ')})` : role) + (name === '' ? '' : ` ${name}`);
    }

    function leave(frame) {
      if (frame.root) return;
      if (frame.isBlock || frame.role !== '') flush(frame.depth);
      const { role, start } = frame;
      if (role === '' || frame.container) {
        if (frame.container && texts.length === start + 1 && frame.name === '' && (role === 'list' || role === 'group' || role === 'article' || role === 'status' || role === 'alert')) drop(start);
        return;
      }
      const level = role === 'heading' ? 'h' + (getAttribute(frame.element, 'aria-level') ?? (/^h[1-6]$/.test(frame.tag) ? frame.tag[1] : '2')).slice(0, 2) : role;
      const words = { listitem: 'item', heading: level }[role] ?? role;
      const own = start + 1;
      const plain = onlyText(own);
      switch (role) {
        case 'cell': case 'gridcell': case 'columnheader': case 'rowheader':
          if (plain) {
            const content = frame.name || joined(own, ' ');
            drop(start);
            emit(frame.depth - 1, frame.ref, clean(content, TEXT), frame.ref === -1 ? 0 : 1);
            if (frame.ref !== -1) texts[start] = line(role, frame.states, clean(content, TEXT));
            else kinds[start] = 0;
          } else { depths.splice(start, 1); refs.splice(start, 1); texts.splice(start, 1); kinds.splice(start, 1); for (let i = start; i < depths.length; i++) depths[i] = Math.max(0, depths[i] - 1); }
          return;
        case 'row':
          if (plain) {
            const cells = texts.slice(own, own + 60).join(' | ');
            const more = texts.length - own - 60;
            drop(start);
            emit(frame.depth - 1, frame.ref, line('row', frame.states, clean(cells, TEXT) + (more > 0 ? ` | +${more}` : '')), 1);
          } else texts[start] = line('row', frame.states, frame.name);
          return;
        case 'listitem':
          if (plain) {
            const content = joined(own, ' ');
            const owner = frame.ref !== -1 ? frame.ref : options.refText && content !== '' ? numberOf(frame.element) : -1;
            drop(start);
            if (content !== '') emit(frame.depth - 1, owner, clean(content, TEXT), 0);
          } else texts[start] = line(words, frame.states, frame.name);
          return;
        case 'heading':
          if (plain) {
            const content = frame.name || joined(own, ' ');
            drop(start);
            if (content !== '') emit(frame.depth - 1, options.refText ? numberOf(frame.element) : frame.ref, line(words, frame.states, clean(content, TEXT)), 1);
          } else texts[start] = line(words, frame.states, frame.name);
          return;
      }
      // An element that acts: its name is its content, unless the author gave it one.
      let name = frame.name;
      if (plain) {
        const content = name || joined(own, ' ') || getAttribute(frame.element, 'title') || (frame.element.placeholder ?? '');
        drop(own);
        name = clean(String(content), NAME);
        if (role === 'clickable' && name === '' && !options.refAll && clientRects(frame.element).length === 0) { drop(start); return; }
      } else if (name !== '') {  // keep only the elements in it
        for (let i = own, to = own; i < texts.length; i++) {
          if (kinds[i] === 0) { if (i === texts.length - 1) { depths.length = refs.length = texts.length = kinds.length = to; } continue; }
          depths[to] = depths[i]; refs[to] = refs[i]; texts[to] = texts[i]; kinds[to] = kinds[i]; to++;
          if (i === texts.length - 1) { depths.length = refs.length = texts.length = kinds.length = to; break; }
        }
      }
      texts[start] = line(role, frame.states, name) + (frame.value !== undefined && frame.value !== '' && frame.value !== name ? ` = ${clean(frame.value, NAME)}` : '');
    }
  }

  function rootOf(number) {
    if (number === undefined || number === null || number < 0) return documentElement(document) ?? document;
    return nodeOf(number);
  }

  function walk(options) {
    next = options.next;
    const root = rootOf(options.within);
    if (root === null) return { gone: true, next };
    const found = outline(root, options);
    const lines = [];
    for (let i = 0; i < found.texts.length; i++) {
      const prefix = found.kinds[i] === 0 ? '- ' : '';
      lines.push(found.depths[i], found.refs[i], prefix + found.texts[i]);
    }
    let count = found.visited;
    if (found.cut) count = elementsByTag(document, '*').length;
    return { lines, next, frames: found.frames.map((index) => [index, found.refs[index]]), cut: found.cut ? Math.max(1, count - found.visited) : 0, suspects: found.suspects, count };
  }

  // The lines that contain a text or have a role, with refs for every one of them.
  function find(options) {
    next = options.next;
    const root = rootOf(options.within);
    if (root === null) return { gone: true, next };
    const found = outline(root, { refText: true, refAll: true });
    const wanted = (options.text ?? '').toLowerCase();
    const lines = [];
    let more = 0;
    for (let i = 0; i < found.texts.length; i++) {
      const line = found.texts[i];
      const role = found.kinds[i] === 0 ? 'text' : /^[a-z0-9]+/.exec(line)?.[0] ?? '';
      if (options.roles && !options.roles.includes(role) && !(options.roles.includes('heading') && /^h\d$/.test(role))) continue;
      const words = found.kinds[i] === 0 ? line : line.replace(/^[a-z0-9]+(\([a-z ]*\))?/, '');
      if (wanted !== '' && !words.toLowerCase().includes(wanted)) continue;
      if (lines.length / 3 >= options.limit) { more++; continue; }
      const node = found.refs[i] === -1 ? null : nodeOf(found.refs[i]);
      let extra = '';
      if (options.details && node !== null && nodeType(node) === 1) {
        if (node instanceof HTMLAnchorElement) extra = ` -> ${clean(node.href, 300)}`;
        else if (node instanceof HTMLImageElement) extra = ` -> ${clean(node.currentSrc || node.src, 300)}`;
        const rect = boundingRect(node);
        extra += ` @${Math.round(rect.x)},${Math.round(rect.y)} ${Math.round(rect.width)}x${Math.round(rect.height)}`;
      }
      lines.push(0, found.refs[i], (found.kinds[i] === 0 ? '- ' : '') + line + extra);
    }
    return { lines, next, more, frames: [], cut: 0, suspects: 0 };
  }

  // The whole text of an element or of the page.
  function read(options) {
    const element = rootOf(options.ref);
    if (element === null) return { gone: true };
    const tag = localName(element);
    const value = valueOf(element, tag, roleOf(element, tag));
    let text;
    if (value !== undefined && tag !== 'progress' && tag !== 'meter') text = value;
    else if (element instanceof HTMLElement && !hasShadow(element)) text = innerText(element === documentElement(document) ? (element.querySelector(':scope > body') ?? element) : element);
    else text = outline(element, { withoutRefs: true }).texts.join('\n');
    text = text.replace(INVISIBLE, '').replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, ' ').replace(/[ \t\u00a0]+/g, ' ').replace(/\n{3,}/g, '\n\n').toWellFormed().trim();
    const attributes = {};
    if (options.attributes) {
      for (const name of options.attributes.slice(0, 20)) {
        let found = getAttribute(element, name);
        if (name === 'value' && isSecret(element)) found = '(hidden)';
        attributes[name] = found === null ? null : clean(found, 1000);
      }
    }
    return { text: text.slice(options.from, options.from + options.limit).toWellFormed(), length: text.length, attributes };
  }
  function hasShadow(element) {
    const walker = createTreeWalker(document, element, NodeFilter.SHOW_ELEMENT);
    for (let node = element, count = 0; node !== null && count < 20000; node = walker.nextNode(), count++) if (shadowOf(node) !== null) return true;
    return false;
  }

  // Checks before an action.
  const frameTurn = () => new Promise((resolve) => {
    const timer = setTimeout(() => resolve(false), 60);
    requestAnimationFrame(() => { clearTimeout(timer); resolve(true); });
  });
  const isVisible = (element) => checkVisibility(element, { visibilityProperty: true, contentVisibilityAuto: true }) &&
    [...clientRects(element)].some((rect) => rect.width > 0 && rect.height > 0);
  function describe(element) {
    if (element === null) return { ref: -1, text: 'nothing' };
    const tag = localName(element);
    const role = roleOf(element, tag) || tag;
    const name = clean(givenName(element, tag, role) || textOf(element, 80), 60);
    return { ref: refOf(element), text: clean(`${role} ${name}`, 100) };
  }
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
  const accepts = (element, hit) => hit !== null && (flatContains(element, hit) ||
    (element instanceof HTMLElement && hit instanceof HTMLElement && closest(hit, 'label') !== null && closest(hit, 'label').control === element));
  function pointIn(element) {
    const width = innerWidth, height = innerHeight;
    let hidden = null;
    for (const rect of clientRects(element)) {
      const left = Math.max(rect.left, 0), top = Math.max(rect.top, 0), right = Math.min(rect.right, width), bottom = Math.min(rect.bottom, height);
      if (right - left < 1 || bottom - top < 1) continue;
      for (const [across, down] of [[0.5, 0.5], [0.25, 0.5], [0.75, 0.5], [0.5, 0.2], [0.5, 0.8], [0.1, 0.1], [0.9, 0.9]]) {
        const x = left + (right - left) * across, y = top + (bottom - top) * down;
        const hit = deepFromPoint(x, y);
        if (accepts(element, hit)) return { x, y };
        hidden ??= hit;
      }
    }
    return { cover: hidden };
  }
  // Wait until the element is visible, stands still, is enabled and can be hit; say where, or why not.
  async function locate(options) {
    next = Math.max(next, options.next);
    const deadline = performance.now() + options.ms;
    let state = { state: 'moving' };
    let before = null;
    let turns = 0;  // a frame that was drawn counts four, a pause without one counts one
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
          if (point.x !== undefined) return { state: 'ok', x: point.x, y: point.y, next };
          state = point.cover ? { state: 'covered', cover: describe(point.cover) } : { state: 'hidden' };
          if (options.scroll !== false) scrollIntoView(element, { block: 'center', inline: 'center', behavior: 'instant' });
          before = null;
        } else if (before !== here) { if (before !== null) state = { state: 'moving' }; before = here; turns = 0; }
      }
      if (performance.now() > deadline) return { ...state, next };
      turns += (await frameTurn()) ? 4 : 1;
    }
  }
  // Where the content of a frame's element begins, and whether a point in it is hit.
  function frameOffset(options) {
    next = Math.max(next, options.next);
    const element = nodeOf(options.ref);
    if (element === null) return { gone: true, next };
    const rect = boundingRect(element), style = styleOf(element);
    const left = rect.left + element.clientLeft + parseFloat(style.paddingLeft), top = rect.top + element.clientTop + parseFloat(style.paddingTop);
    const hit = deepFromPoint(left + options.x, top + options.y);
    const cover = hit === element ? null : describe(hit);
    return { left, top, cover, next };
  }
  function bringIntoView(options) {
    const element = nodeOf(options.ref);
    if (element === null) return false;
    const rect = boundingRect(element);
    if (rect.top < 0 || rect.bottom > innerHeight || rect.left < 0 || rect.right > innerWidth) scrollIntoView(element, { block: 'center', inline: 'center', behavior: 'instant' });
    return true;
  }

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

  // Fields.
  function field(options) {
    const element = nodeOf(options.ref);
    if (element === null) return { kind: 'gone' };
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
    focusElement(element);
    if (options.select) {
      if (element instanceof HTMLInputElement || element instanceof HTMLTextAreaElement) element.select();
      else {
        const selection = getSelection();
        selection.selectAllChildren(element);
      }
    } else if (options.end && (element instanceof HTMLInputElement || element instanceof HTMLTextAreaElement)) {
      try { element.setSelectionRange(element.value.length, element.value.length); } catch { /* a kind without a selection */ }
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

  // Conditions of wait and expect.
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
  function hasText(options) {
    const root = rootOf(options.within);
    if (root === null) return false;
    const wanted = options.text.toLowerCase();
    return outline(root, { withoutRefs: true }).texts.some((line) => line.toLowerCase().includes(wanted));
  }
  function ready() { return { url: clean(location.href, 2000), title: clean(titleOf(document), 300), state: document.readyState }; }
  async function settle(options) {
    await frameTurn();
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
  function scrollBy(options) {
    const element = options.ref >= 0 ? nodeOf(options.ref) : null;
    if (options.ref >= 0 && element === null) return null;
    let node = element ?? document.scrollingElement ?? documentElement(document);
    while (element !== null && node !== null && nodeType(node) === 1 && !(node.scrollHeight > node.clientHeight + 1 && /auto|scroll|overlay/.test(styleOf(node).overflowY))) node = flatParent(node);
    if (node === null || nodeType(node) !== 1) node = document.scrollingElement ?? documentElement(document);
    return { top: Math.round(node.scrollTop), height: node.scrollHeight, view: node.clientHeight };
  }
  function box(options) {
    const element = nodeOf(options.ref);
    if (element === null) return null;
    scrollIntoView(element, { block: 'nearest', inline: 'nearest', behavior: 'instant' });
    const rect = boundingRect(element);
    return { x: rect.x + scrollX, y: rect.y + scrollY, width: rect.width, height: rect.height };
  }
  function similar(options) {
    next = Math.max(next, options.next);
    const found = outline(rootOf(-1), {});
    const wanted = options.text.toLowerCase();
    const lines = [];
    for (let i = 0; i < found.texts.length && lines.length < 9; i++) {
      if (found.refs[i] !== -1 && found.kinds[i] === 1 && found.texts[i].toLowerCase() === wanted) lines.push(0, found.refs[i], found.texts[i]);
    }
    return { lines, next };
  }

  Object.defineProperty(globalThis, 'stage', {
    value: Object.freeze({
      walk, find, read, locate, frameOffset, bringIntoView, arm, disarm, field, focusField, setField, choose, shownValue, facts, hasText,
      ready, settle, scrollBy, box, similar, element: nodeOf, refFor: (node, from) => { next = Math.max(next, from); return [refOf(node), next]; },
      addClosedRoot: (root) => { closedRoots.set(root.host, root); },
      count: () => elementsByTag(document, '*').length,
    }),
  });
})();
