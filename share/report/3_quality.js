// Quality against bytes, and what all figures have in common: each is {title, note, height, choices, legend,
// draw(chosen)}, and draw gives {traces, layout, table()}. What a figure shows comes from the data as it is;
// only units are changed.

// Told apart without colour vision, by lightness too; then by the marker.
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8c6bb1", "#a6761d"];
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross"];
const QUESTION_LINES = {
  none: "dot",
  agnostic: "dot",
  aware: "dash",
  "per-chunk": "dashdot",
  "legacy-order": "longdash"
};
const METHODS = [...new Set(data.folders.flatMap(folder => folder.arms.map(arm => arm.method)))];

function methodStyle(method) {
  const place = METHODS.indexOf(method);
  return {
    color: COLOURS[place % COLOURS.length],
    symbol: SYMBOLS[Math.floor(place / COLOURS.length) % SYMBOLS.length]
  };
}

// 1, 2 and 5 times powers of ten between two values.
function logTicks(low, high) {
  const ticks = [];
  for (let decade = Math.floor(Math.log10(low)) - 1; decade <= Math.ceil(Math.log10(high)); ++decade) {
    ticks.push(...[1, 2, 5].map(digit => Number((digit * 10 ** decade).toPrecision(1))));
  }
  return ticks;
}

function bytesAxis(values) {
  const mib = values.map(value => value / MIB).filter(value => value > 0);
  const ticks = mib.length ? logTicks(Math.min(...mib), Math.max(...mib)) : [];
  return {
    type: "log",
    title: {text: "cache bytes (MiB, logarithmic)"},
    tickvals: ticks,
    ticktext: ticks.map(String)
  };
}

function qualityTraces(panel, rows, metric) {
  const questions = [...new Set(rows.map(row => row.group.question))];
  const traces = [];
  for (const front of panel.fronts.filter(each => each.metric === metric)) {
    const on = front.groups.map(index => rows.find(row => row.index === index));
    traces.push({
      type: "scatter",
      mode: "lines",
      hoverinfo: "skip",
      role: "front",
      x: on.map(row => row.group.kv_bytes / MIB),
      y: on.map(row => row.group.metrics[metric].mean),
      line: {dash: QUESTION_LINES[front.question], width: 1.5, shape: "hv", color: "front"}
    });
  }
  for (const method of METHODS) {
    for (const question of questions) {
      const of = rows.filter(
          row => row.arm.method === method && row.group.question === question && row.group.metrics[metric]);
      if (of.length === 0) {
        continue;
      }
      const style = methodStyle(method);
      const means = of.map(row => row.group.metrics[metric]);
      traces.push({
        type: "scatter",
        mode: "markers",
        role: method,
        name: plotText(method),
        x: of.map(row => row.group.kv_bytes / MIB),
        y: means.map(mean => mean.mean),
        error_y: {
          type: "data",
          symmetric: false,
          array: means.map(mean => mean.high - mean.mean),
          arrayminus: means.map(mean => mean.mean - mean.low),
          thickness: 1,
          width: 2,
          color: style.color
        },
        marker: {
          color: style.color,
          symbol: style.symbol + (question === "aware" ? "-open" : ""),
          size: 9,
          line: {width: question === "aware" ? 2 : 0, color: style.color}
        },
        text: of.map(
            (row, i) => plotText(armName(row.group)) + "<br>" + plotText(metric) + " " +
                numberText(means[i].mean) + " " + intervalText(means[i].low, means[i].high) + "<br>" +
                percentText(row.group.kept_fraction) + " kept, " + bytesText(row.group.kv_bytes)),
        hovertemplate: "%{text}<extra></extra>",
      });
    }
  }
  return traces;
}

function qualityFigure(panel, rows) {
  const preferred = panel.primary === "nll" ? ["kl", "ppl"] : ["score", "gold_nll"];
  const there = Object.keys(data.metrics).filter(name => rows.some(row => row.group.metrics[name]));
  const metrics =
      [...preferred.filter(name => there.includes(name)), ...there.filter(name => !preferred.includes(name))];
  const isAware = rows.some(row => row.group.question === "aware");
  return {
    title: "Quality against bytes",
    note: "Lines: the Pareto front, which nothing with as few bytes is better than. Bars: 95 % intervals." +
        (isAware ? " Hollow markers and the dashed front: the question was known when the document was cut." :
                   ""),
    height: 420,
    choices: {Quality: metrics.map(name => [name, metricLabel(name)])},
    legend: METHODS.filter(method => rows.some(row => row.arm.method === method && row.group.n)),
    draw: ({Quality: metric}) => {
      const front = new Map(panel.fronts.filter(each => each.metric === metric)
                                .flatMap(each => each.groups.map(index => [index, true])));
      const drawn = rows.filter(row => row.group.metrics[metric]);
      return {
        traces: qualityTraces(panel, rows, metric),
        layout: {
          xaxis: bytesAxis(drawn.map(row => row.group.kv_bytes)),
          yaxis: {
            title: {
              text: metricLabel(metric) +
                  (data.metrics[metric].is_higher_better ? " (higher is better)" : " (lower is better)")
            },
            rangemode: metric === "score" ? "tozero" : "normal"
          }
        },
        table: () => table(
            "Quality against bytes: " + metricLabel(metric),
            [
              {title: "arm", kind: TEXT, value: row => armName(row.group)},
              {title: "cache bytes", value: row => row.group.kv_bytes, text: bytesText},
              metricColumn(metric),
              {title: "front", kind: TEXT, value: row => front.has(row.index) ? "yes" : ""},
            ],
            drawn),
      };
    },
  };
}
