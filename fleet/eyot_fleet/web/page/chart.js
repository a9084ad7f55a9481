// A device's day: one figure in steps, as an area; grey where the device was not linked, a gap where nothing was heard.
import {clock, draw, make, now, number, span} from "./text.js";

const HEIGHT = 100, TOP = 6;
export function chart(name, day, figure, words, current) {
  const shown = figure === "oldest_s" ? span : number;
  const points = day.points, values = points.map((each) => each[figure]);
  const known = values.filter((value) => value !== null && value !== undefined);
  const node = make("figure", null, {class: "card"});
  if (!known.length) {
    node.append(make("figcaption", words + ": nothing heard in the last day"));
    return node;
  }
  const largest = Math.max(...known), at = points[values.indexOf(largest)].at;
  const summary = words + ": now " + (current === null || current === undefined ? "unknown" : shown(current)) + ", largest " + shown(largest) + " at " + clock(at);
  const svg = draw("svg", {viewBox: "0 0 " + points.length + " " + HEIGHT, preserveAspectRatio: "none", role: "img", "aria-label": name + ": " + summary});
  svg.append(draw("title", {}, summary));
  for (let place = 0; place < points.length; place += 1) {
    const start = place;
    while (place < points.length && points[place].heard && !points[place].linked) place += 1;
    if (place > start) svg.append(draw("rect", {class: "off", x: start, y: 0, width: place - start, height: HEIGHT}));
  }
  svg.append(draw("line", {class: "base", x1: 0, x2: points.length, y1: HEIGHT - .5, y2: HEIGHT - .5}));
  let run = [];
  const flush = () => {
    if (!run.length) return;
    const outline = run.map(([x, y]) => x + "," + y).join(" ");
    svg.append(draw("polygon", {class: "area", points: run[0][0] + "," + HEIGHT + " " + outline + " " + run[run.length - 1][0] + "," + HEIGHT}));
    svg.append(draw("polyline", {class: "curve", points: outline}));
    run = [];
  };
  values.forEach((value, place) => {
    if (value === null || value === undefined) { flush(); return; }
    const y = HEIGHT - 2 - value / (largest || 1) * (HEIGHT - TOP - 2);
    run.push([place, y], [place + 1, y]);
  });
  flush();
  const axis = make("div", null, {class: "axis", "aria-hidden": "true"}), from = points[0].at;
  axis.append(make("span", clock(from)), make("span", clock((from + now()) / 2)), make("span", "now"));
  node.append(make("figcaption", summary), svg, axis);
  return node;
}
