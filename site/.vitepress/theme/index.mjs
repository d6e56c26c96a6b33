import { useRoute } from "vitepress";
import theme from "vitepress/theme";
import { h, nextTick, onMounted, watch } from "vue";
import "./style.css";

/** Makes the content of the first page a landmark, as VitePress does for all other pages. */
const Landmark = {
  setup() {
    const route = useRoute();
    const mark = () => {
      const content = document.getElementById("VPContent");
      if (content?.classList.contains("is-home")) content.setAttribute("role", "main");
      else content?.removeAttribute("role");
    };
    onMounted(mark);
    watch(
      () => route.path,
      () => nextTick(mark),
    );
    return () => undefined;
  },
};

export default { extends: theme, Layout: () => h(theme.Layout, null, { "layout-bottom": () => h(Landmark) }) };
