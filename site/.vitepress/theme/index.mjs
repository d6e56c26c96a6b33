import { useRoute } from "vitepress";
import theme from "vitepress/theme";
import { h, nextTick, onMounted, watch } from "vue";
import "./style.css";

/** Makes the content of the first page a landmark, as VitePress does for all other pages. */
function markContent() {
  const content = document.getElementById("VPContent");
  if (content?.classList.contains("is-home")) content.setAttribute("role", "main");
  else content?.removeAttribute("role");
}

/** Renders nothing. Marks the content of each page that is shown. */
const Landmark = {
  setup() {
    const route = useRoute();
    onMounted(markContent);
    watch(
      () => route.path,
      () => nextTick(markContent),
    );
    return () => undefined;
  },
};

export default { extends: theme, Layout: () => h(theme.Layout, null, { "layout-bottom": () => h(Landmark) }) };
