/** Draws two live curves of the last minute: messages a second, and this page's round trip. */
import { byId } from "./dom.js";

const SECONDS = 60;

/** Makes a curve of the elements whose ids begin with `name`. Returns a function that adds a value. */
export function curve(name: string, least: number, write: (value: number) => string): (value: number) => void {
  const line = byId(`${name}-line`, SVGPolylineElement);
  const area = byId(`${name}-area`, SVGPolygonElement);
  const figure = byId(`${name}-figure`, HTMLElement);
  const values: number[] = [];
  return (value) => {
    values.push(value);
    if (values.length > SECONDS) values.shift();
    const most = Math.max(least, ...values) * 1.1;
    const start = SECONDS - values.length;
    const points = values.map((each, i) => `${start + i},${(100 - (each / most) * 100).toFixed(1)}`);
    line.setAttribute("points", points.join(" "));
    area.setAttribute("points", [`${start},100`, ...points, `${SECONDS - 1},100`].join(" "));
    figure.textContent = write(value);
  };
}
