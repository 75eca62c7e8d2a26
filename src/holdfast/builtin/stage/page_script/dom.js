// Access to nodes that a page cannot influence, and the numbers (refs) of nodes.
// A named element becomes a property of its form or document (`form.firstChild` may be an input with that name), so properties that
// all nodes have are read through the getters of the prototypes.

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
const createTreeWalker = method(Document.prototype, 'createTreeWalker');
const elementFromPoint = method(Document.prototype, 'elementFromPoint');
const shadowElementFromPoint = method(ShadowRoot.prototype, 'elementFromPoint');
const shadowActive = getter(ShadowRoot.prototype, 'activeElement');
const titleOf = getter(Document.prototype, 'title');
const styleOf = globalThis.getComputedStyle.bind(globalThis);
const HTML = 'http://www.w3.org/1999/xhtml';

const NAME = 160, TEXT = 500;  // how many characters of a name and of a text are shown
const MAX_NODES = 400000, MAX_LINES = 200000, MAX_DEPTH = 60;  // limits of an outline

const nodes = new Map();        // ref number -> WeakRef of a node
const numbers = new WeakMap();  // node -> ref number
const closedRoots = new WeakMap();  // element -> its closed shadow root, which Python found through the browser
const secrets = new WeakSet();  // fields that were password fields at some time
const removed = new FinalizationRegistry((number) => nodes.delete(number));
let next = 0;  // the next ref number; Python passes it with each call, because all documents of a tab share the numbers

// The ref number of a node. A new node gets the next one.
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
// The node with a ref number; null if it is no longer in the document.
function nodeOf(number) {
  const node = nodes.get(number)?.deref();
  return node !== undefined && isConnected(node) ? node : null;
}
const shadowOf = (element) => openRoot(element) ?? closedRoots.get(element) ?? null;
// How many texts, comments and elements the document has, including those in the shadow roots that this script knows. The browser counts
// the same kinds of nodes in all shadow roots: if it counts more, there are closed shadow roots that this script does not know.
function countNodes() {
  const shown = NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT | NodeFilter.SHOW_CDATA_SECTION | NodeFilter.SHOW_COMMENT;
  const top = documentElement(document);
  const stack = top === null ? [] : [top];
  let count = stack.length;
  const look = (node) => { const root = shadowOf(node); if (root !== null) stack.push(root); };
  stack.forEach(look);
  while (stack.length) {
    const walker = createTreeWalker(document, stack.pop(), shown);
    for (let node = walker.nextNode(); node !== null; node = walker.nextNode()) {
      count++;
      if (nodeType(node) === 1) look(node);
    }
  }
  return count;
}
// The parent of a node in the flat tree, in which a slot contains the nodes that are assigned to it, as they are shown.
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
// Whether a node is another one, or inside it in the flat tree.
function flatContains(outer, inner) {
  for (let node = inner, steps = 0; node !== null && steps < 10000; node = flatParent(node), steps++) {
    if (node === outer) return true;
  }
  return false;
}
