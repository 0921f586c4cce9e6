// Puts figures into the page: controls, plot, legend, table. A figure is drawn once it comes near the window.

const NARROW = 600;  // pixels
const drawn = new Set();

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

function themed(layout, width) {
  const grid = colour("grid");
  const axis = given =>
      ({gridcolor: grid, zerolinecolor: grid, linecolor: colour("line"), automargin: true, ...given});
  const isNarrow = width < NARROW;
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    showlegend: false,
    dragmode: false,
    hovermode: "closest",
    font: {color: colour("text"), size: isNarrow ? 11 : 12, family: "system-ui, sans-serif"},
    margin: {l: isNarrow ? 44 : 60, r: 12, t: 28, b: 48},
    hoverlabel: {bgcolor: colour("page"), bordercolor: colour("line"), font: {color: colour("text")}},
    ...layout,
    xaxis: axis({fixedrange: true, ...layout.xaxis}),
    yaxis: axis({fixedrange: true, ...layout.yaxis}),
  };
}

function redraw(figure) {
  const width = figure.plot.clientWidth;
  const {traces, layout} = figure.spec.draw(figure.chosen, width < NARROW);
  const visible =
      traces.filter(trace => !figure.hidden.has(trace.role))
          .map(
              trace =>
                  trace.role === "front" ? {...trace, line: {...trace.line, color: colour("muted")}} : trace);
  Plotly.react(
      figure.plot, visible, themed({...layout, width, height: figure.spec.height}, width),
      {displayModeBar: false, staticPlot: false, responsive: false});
  drawn.add(figure);
}

function tableOf(figure) {
  return figure.spec.draw(figure.chosen, false).table();
}

function selector(figure, name, options) {
  const select = element(
      "select", {
        onchange: event => {
          figure.chosen[name] = event.target.value;
          if (figure.details.lastChild !== figure.details.firstChild) {
            figure.details.lastChild.replaceWith(tableOf(figure));
          }
          redraw(figure);
        }
      },
      ...options.map(([value, text]) => element("option", {value}, text)));
  return element("label", {}, name + " ", select);
}

// Plotly's markers as paths in a square of 12.
const MARKS = {
  circle: "M1 6a5 5 0 1 0 10 0a5 5 0 1 0-10 0",
  square: "M1 1h10v10h-10z",
  diamond: "M6 0l6 6l-6 6l-6-6z",
  "triangle-up": "M6 1l6 10h-12z",
  cross: "M4 0h4v4h4v4h-4v4h-4v-4h-4v-4h4z",
};

function legendButton(figure, method) {
  const style = methodStyle(method);
  const mark = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  mark.setAttribute("width", 12);
  mark.setAttribute("height", 12);
  mark.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", MARKS[style.symbol]);
  path.setAttribute("fill", style.color);
  mark.append(path);
  return element(
      "button", {
        type: "button",
        "aria-pressed": "true",
        onclick: event => {
          const isShown = figure.hidden.delete(method);
          if (!isShown) {
            figure.hidden.add(method);
          }
          event.currentTarget.setAttribute("aria-pressed", String(isShown));
          redraw(figure);
        }
      },
      mark, method);
}

const nearby = new IntersectionObserver(entries => {
  for (const entry of entries.filter(each => each.isIntersecting)) {
    nearby.unobserve(entry.target);
    redraw(entry.target.figure);
  }
}, {rootMargin: "600px"});

function figureElement(spec) {
  const figure = {spec, hidden: new Set(), chosen: {}};
  for (const [name, options] of Object.entries(spec.choices)) {
    figure.chosen[name] = options[0][0];
  }
  figure.plot = element("div", {
    class: "canvas",
    role: "img",
    "aria-label": spec.title + "; the same numbers are in the table below",
    style: "height: " + spec.height + "px"
  });
  figure.plot.figure = figure;
  figure.details = unfolding("The numbers as a table", () => tableOf(figure));

  nearby.observe(figure.plot);
  const controls = Object.entries(spec.choices)
                       .filter(([, options]) => options.length > 1)
                       .map(([name, options]) => selector(figure, name, options));
  return element(
      "figure", {}, element("figcaption", {}, spec.title), element("p", {class: "muted"}, spec.note),
      controls.length ? element("div", {class: "controls"}, ...controls) : null, figure.plot,
      spec.legend ? element(
                        "div", {class: "legend", role: "group", "aria-label": "Methods shown"},
                        ...spec.legend.map(method => legendButton(figure, method))) :
                    null,
      figure.details);
}

function drawAll() {
  for (const plot of document.querySelectorAll(".canvas")) {
    if (!drawn.has(plot.figure)) {
      nearby.unobserve(plot);
      redraw(plot.figure);
    }
  }
}

function setTheme(isDark) {
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  const button = document.getElementById("theme");
  button.setAttribute("aria-pressed", String(isDark));
  drawn.forEach(redraw);
}

// The system's choice until the button is used.
function startTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let isChosen = false;
  setTheme(system.matches);
  system.addEventListener("change", event => isChosen || setTheme(event.matches));
  document.getElementById("theme").addEventListener("click", () => {
    isChosen = true;
    setTheme(document.documentElement.dataset.theme !== "dark");
  });
}

function startResizing() {
  let pending = 0;
  let width = innerWidth;
  addEventListener("resize", () => {
    clearTimeout(pending);
    pending = setTimeout(() => {
      if (innerWidth !== width) {
        width = innerWidth;
        drawn.forEach(redraw);
      }
    }, 150);
  });
  addEventListener("beforeprint", drawAll);
}
