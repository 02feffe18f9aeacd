// Colours of Slang in the Python strings of notebooks: a prebuilt extension of JupyterLab.
//
// JupyterLab loads this file as a container of module federation: `init` receives the modules that
// JupyterLab shares, `get` returns the module of the plugin. A failure is reported in the browser's
// console; JupyterLab then works without these colours.
(() => {
  "use strict";
  const NAME = "vklab-slang";
  // A string is a kernel if it holds one of these.
  const KERNEL = /\[shader\("|StructuredBuffer</;
  // The first rule that matches has the word. Quotes keep the colour of the string.
  const RULES = {
    comment: String.raw`//.*|/\*[^]*?(?:\*/|$)`,
    // After a word or a bracket, `[` opens an index and no attribute.
    meta: String.raw`(?<![\w)\]])\[\[?[A-Za-z_][\w:]*(?:\([^)\n]*\))?\]\]?|#[a-z]+.*|\bSV_\w+`,
    type: String.raw`\b(?:void|(?:u?int|float|half|double|bool)(?:[1-4](?:x[1-4])?)?|` +
      String.raw`u?int(?:8|16|64)_t|(?:RW)?(?:Structured|ByteAddress)Buffer|ConstantBuffer)\b`,
    keyword: String.raw`\b(?:break|const|continue|do|else|false|for|groupshared|if|import|in|` +
      String.raw`inout|out|return|static|struct|true|uniform|while)\b`,
    number: String.raw`\b0x[\da-fA-F]+u?|(?:\b\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?[fhu]?`,
    call: String.raw`\b[A-Za-z_]\w*(?=\()`,
    plain: String.raw`\w+|[^\s\w"']`,
  };
  const TOKEN = new RegExp(
    Object.entries(RULES).map(([kind, rule]) => `(?<${kind}>${rule})`).join("|"), "g");
  // The colours that JupyterLab's theme gives to Python.
  const COLOURS = {
    comment: {color: "var(--jp-mirror-editor-comment-color)", fontStyle: "italic"},
    meta: {color: "var(--jp-mirror-editor-operator-color)"},
    type: {color: "var(--jp-mirror-editor-builtin-color)"},
    keyword: {color: "var(--jp-mirror-editor-keyword-color)", fontWeight: "bold"},
    number: {color: "var(--jp-mirror-editor-number-color)"},
    call: {color: "var(--jp-mirror-editor-def-color)"},
    plain: {color: "var(--jp-mirror-editor-variable-color)"},
  };
  // JupyterLab's own colours of these are below a contrast of 4.5 to 1 on the background of a cell.
  const READABLE = {
    true: {bracket: "#66664d", comment: "#387070", meta: "#9a12ee", number: "#007a00"},
    false: {comment: "#62a8a8", def: "#42a5f5", meta: "#c77dff"},
  };
  const readable = Object.entries(READABLE).map(([light, colours]) =>
    `body[data-jp-theme-light="${light}"] {` + Object.entries(colours).map(
      ([name, colour]) => `--jp-mirror-editor-${name}-color: ${colour};`).join("") + "}").join("");
  let modules;

  // The first version is JupyterLab's own.
  const shared = async name => (await Object.values(modules[name])[0].get())();

  // Yield [from, to, kind] of each word of the kernels that the editor shows.
  function* words(view, syntaxTree) {
    const strings = [];
    const enter = node => {
      if (node.name === "String") strings.push([node.from, node.to]);
    };
    syntaxTree(view.state).iterate({...view.viewport, enter});
    for (const [from, to] of strings) {
      const text = view.state.sliceDoc(from, to);
      const [opening] = /^\w*("""|''')/.exec(text) ?? [];
      if (!opening || !KERNEL.test(text)) continue;
      for (const {index, groups} of text.slice(opening.length).matchAll(TOKEN)) {
        const [kind, word] = Object.entries(groups).find(([, found]) => found);
        const start = from + opening.length + index;
        yield [start, start + word.length, kind];
      }
    }
  }

  // Return the extension of an editor.
  async function colours() {
    const [{Prec}, {Decoration, EditorView, ViewPlugin}, {syntaxTree}] = await Promise.all(
      ["@codemirror/state", "@codemirror/view", "@codemirror/language"].map(shared));
    const marks = {}, theme = {};
    for (const [kind, style] of Object.entries(COLOURS)) {
      marks[kind] = Decoration.mark({class: `${NAME}-${kind}`});
      theme[`.${NAME}-${kind}`] = style;
    }
    const marked = view => Decoration.set(
      Array.from(words(view, syntaxTree), ([from, to, kind]) => marks[kind].range(from, to)));
    const plugin = ViewPlugin.define(view => ({
      marks: marked(view),
      update({docChanged, viewportChanged, startState, state, view}) {
        if (docChanged || viewportChanged || syntaxTree(startState) !== syntaxTree(state))
          this.marks = marked(view);
      },
    }), {decorations: made => made.marks});
    // The highest precedence draws inside the mark of the string, so its colour is the one seen.
    return [EditorView.baseTheme(theme), Prec.highest(plugin)];
  }

  async function plugins() {
    const lab = await shared("@jupyterlab/codemirror");
    const extension = lab.EditorExtensionRegistry.createImmutableExtension(await colours());
    const factory = () => extension;
    const activate = (app, registry) => {
      try {
        registry.addExtension({name: NAME, default: true, factory});
        document.head.append(Object.assign(document.createElement("style"), {textContent: readable}));
      } catch (error) {
        console.warn(NAME, error);
      }
    };
    const requires = [lab.IEditorExtensionRegistry];
    return [{id: `${NAME}:plugin`, autoStart: true, requires, activate}];
  }

  window._JUPYTERLAB ??= {};
  window._JUPYTERLAB[NAME] = {
    init: scope => { modules = scope; },
    get: async () => {
      const found = await plugins().catch(error => {
        console.warn(NAME, error);
        return [];
      });
      // Without __esModule JupyterLab takes the module itself for a plugin, and does not start.
      return () => ({__esModule: true, default: found});
    },
  };
})();
