import { useRoute } from "vitepress";
import theme from "vitepress/theme";
import { h, nextTick, onMounted, watch } from "vue";
import "./style.css";

/** Makes the content of the first page, and of an address without a page, a landmark, as VitePress does for all other pages. */
function markContent() {
  const content = document.getElementById("VPContent");
  if (content?.querySelector("main") === null) content.setAttribute("role", "main");
  else content?.removeAttribute("role");
}

/**
 * Makes the search a dialog, and each result an option. VitePress makes the search a button and puts a link into each option, but
 * buttons and options must not contain other controls.
 */
function markSearch() {
  const search = document.querySelector(".VPLocalSearchBox");
  if (search?.hasAttribute("aria-expanded")) {
    for (const name of ["aria-expanded", "aria-haspopup", "aria-owns"]) search.removeAttribute(name);
    search.setAttribute("role", "dialog");
    search.setAttribute("aria-modal", "true");
  }
  for (const result of search?.querySelectorAll(".result") ?? []) {
    const item = result.parentElement;
    result.removeAttribute("aria-label"); // its text says more
    item.setAttribute("role", "presentation");
    result.setAttribute("role", "option");
    for (const name of ["id", "aria-selected"]) {
      if (!item.hasAttribute(name)) continue;
      result.setAttribute(name, item.getAttribute(name));
      item.removeAttribute(name);
    }
  }
}

/** The attributes that VitePress sets again when the results of the search change. */
const MARKED = ["aria-expanded", "aria-label", "aria-selected", "id"];

/** Renders nothing. Marks the content of each page that is shown, and the search. */
const Landmark = {
  setup() {
    const route = useRoute();
    onMounted(() => {
      markContent();
      const changes = { childList: true, subtree: true, attributes: true, attributeFilter: MARKED };
      new MutationObserver(markSearch).observe(document.body, changes);
    });
    watch(
      () => route.path,
      () => nextTick(markContent),
    );
    return () => undefined;
  },
};

/** The calls of the first page's example, as a diagram. Each is a line with the side that it starts from. */
const STEPS = [
  { text: "clear()", isToServer: true },
  { text: 'confirm("Clear the board?")', isToServer: false },
  { text: "true", isToServer: true, isAnswer: true },
  { text: '"cleared"', isToServer: false, isAnswer: true },
];

/** Renders two sides that call each other. The text of the page says the same. */
function Diagram() {
  const lines = STEPS.flatMap(({ text, isToServer, isAnswer }, i) => {
    const y = 96 + i * 48;
    const [from, to] = isToServer ? [44, 306] : [316, 54];
    return [
      h("text", { x: 180, y: y - 9, "text-anchor": "middle" }, text),
      h("path", { class: { answer: isAnswer }, d: `M${from} ${y}H${to}`, "marker-end": "url(#arrow)" }),
    ];
  });
  const sides = [
    { name: "page", x: 40 },
    { name: "server", x: 320 },
  ].flatMap(({ name, x }) => [
    h("path", { class: "side", d: `M${x} 48V268` }),
    h("rect", { x: x - 40, y: 12, width: 80, height: 36, rx: 8 }),
    h("text", { class: "name", x, y: 35, "text-anchor": "middle" }, name),
  ]);
  const arrow = h(
    "marker",
    { id: "arrow", refX: 6, refY: 5, markerWidth: 8, markerHeight: 8, viewBox: "0 0 10 10", orient: "auto" },
    [h("path", { class: "head", d: "M0 0L10 5L0 10z" })],
  );
  return h("svg", { class: "diagram", viewBox: "-4 0 368 280", "aria-hidden": "true" }, [
    h("defs", [arrow]),
    ...sides,
    ...lines,
  ]);
}

const slots = { "layout-bottom": () => h(Landmark), "home-hero-image": () => h(Diagram) };
export default { extends: theme, Layout: () => h(theme.Layout, null, slots) };
