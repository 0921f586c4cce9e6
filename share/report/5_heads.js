// What was measured of each head: medians by layer, and all heads of an arm.

// What is compared first, then the rest.
function headNames(panel, rows) {
  const names = [...new Set(rows.flatMap(row => Object.keys(row.group.heads || {})))];
  return names.sort((a, b) => (b === panel.primary) - (a === panel.primary));
}

function layersFigure(panel, rows) {
  const names = headNames(panel, rows);
  if (names.length === 0) {
    return null;
  }
  const statistics = {median: "median over the heads", positive: "share of heads above 0"};
  return {
    title: "By layer",
    note: "Of each head’s mean over the samples.",
    height: 380,
    choices: {Measure: names.map(name => [name, name]), Statistic: Object.entries(statistics)},
    legend: METHODS.filter(method => rows.some(row => row.arm.method === method && row.group.heads)),
    draw: ({Measure: name, Statistic: statistic}) => {
      const shown = rows.filter(row => row.group.heads && row.group.heads[name]);
      const layers = (shown[0].group.heads[name].mean).map((_, layer) => layer);
      return {
        traces: shown.map(row => {
          const style = methodStyle(row.arm.method);
          return {
            type: "scatter",
            mode: "lines+markers",
            role: row.arm.method,
            name: plotText(armName(row.group)),
            x: layers,
            y: row.group.heads[name][statistic],
            connectgaps: true,  // over layers that were not measured
            line: {color: style.color, width: 1.5},
            marker: {color: style.color, symbol: style.symbol, size: 6},
            hovertemplate: plotText(armName(row.group)) + "<br>layer %{x}: %{y}<extra></extra>",
          };
        }),
        layout: {
          xaxis: {title: {text: "layer"}},
          yaxis: {title: {text: plotText(name) + ", " + statistics[statistic]}},
        },
        table: () => table(
            name + ", " + statistics[statistic],
            [
              {title: "layer", value: layer => layer},
              ...shown.map(
                  row =>
                      ({title: armName(row.group), value: layer => row.group.heads[name][statistic][layer]})),
            ],
            layers),
      };
    },
  };
}

function headsFigure(panel, rows) {
  const names = headNames(panel, rows);
  const isFull = row => row.group.policy === "full" ? 1 : 0;
  const shown = rows.filter(row => row.group.heads).sort((a, b) => isFull(a) - isFull(b));
  if (names.length === 0) {
    return null;
  }
  return {
    title: "Every head",
    note: "Means over the samples.",
    height: 420,
    choices: {Arm: armChoices(shown), Measure: names.map(name => [name, name])},
    draw: ({Arm: index, Measure: name}) => {
      const row = shown.find(each => String(each.index) === index);
      const means = row.group.heads[name] ? row.group.heads[name].mean : [];
      const heads = Array.from({length: Math.max(0, ...means.map(layer => layer.length))}, (_, head) => head);
      const values = means.flat();
      return {
        ...heatMap({
          x: heads,
          y: means.map((_, layer) => layer),
          z: means.map(layer => heads.map(head => layer[head] ?? null)),
          xTitle: "head",
          yTitle: "layer",
          unit: name,
          range: [Math.min(0, ...values), Math.max(0, ...values)],
          isReversed: true
        }),
        table: () => table(
            armName(row.group) + ": " + name,
            [
              {title: "layer", value: each => each.layer},
              ...heads.map(head => ({title: "head " + head, value: each => each.values[head] ?? null})),
            ],
            means.map((layerValues, layer) => ({layer, values: layerValues}))),
      };
    },
  };
}
