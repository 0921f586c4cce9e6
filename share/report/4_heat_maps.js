// Heat maps: quality by depth and length, kept rows by layer and KV head.

function heatMap({x, y, z, xTitle, yTitle, unit, range, isReversed}) {
  return {
    traces: [{
      type: "heatmap",
      x: x.map((_, i) => i),
      y: y.map((_, i) => i),
      z,
      colorscale: "Cividis",
      zmin: range[0],
      zmax: range[1],
      xgap: 1,
      ygap: 1,
      hoverongaps: false,
      colorbar: {thickness: 12, outlinewidth: 0, title: {text: plotText(unit), side: "right"}},
      customdata: y.map(each => x.map(other => [plotText(String(other)), plotText(String(each))])),
      hovertemplate: xTitle + " %{customdata[0]}<br>" + yTitle + " %{customdata[1]}<br>%{z}<extra></extra>"
    }],
    layout: {
      xaxis: {
        title: {text: xTitle},
        tickvals: x.map((_, i) => i),
        ticktext: x.map(each => plotText(String(each))),
        showgrid: false,
        zeroline: false
      },
      yaxis: {
        title: {text: yTitle},
        tickmode: y.length > 24 ? "auto" : "array",
        nticks: 12,
        tickvals: y.length > 24 ? undefined : y.map((_, i) => i),
        ticktext: y.length > 24 ? undefined : y.map(each => plotText(String(each))),
        autorange: isReversed ? "reversed" : true,
        showgrid: false,
        zeroline: false
      },
    },
  };
}

function armChoices(rows) {
  return rows.map(row => [String(row.index), armName(row.group)]);
}

// Of an arm: {depth, n, metrics: {name: mean}} for each depth.
function depthsOf({depths}) {
  const metrics = Object.entries(depths.metrics);
  return depths.depth.map((depth, i) => ({
                            depth,
                            n: depths.n[i],
                            metrics: Object.fromEntries(metrics.map(([name, values]) => [name, values[i]]))
                          }));
}

// What was asked for stands at a depth of the document: by depth and length, over all panels of a folder and
// task.
function depthFigure(panels) {
  const rows = panels.flatMap(panel => panel.rows)
                   .map(row => ({...row, depths: depthsOf(row.arm)}))
                   .filter(row => row.depths.length > 0);

  if (rows.length === 0) {
    return null;
  }
  const isCut = row => row.group.rows_evicted > 0;
  const arms = [...new Set([...rows.filter(isCut), ...rows].map(row => armName(row.group)))];
  const lengths = [...new Set(rows.map(row => row.group.n_tokens))].sort((a, b) => a - b);
  const depths = [...new Set(rows.flatMap(row => row.depths.map(each => each.depth)))].sort(
      (a, b) => Number(a) - Number(b));
  const metrics = Object.keys(data.metrics)
                      .filter(name => rows.some(row => row.depths.some(each => name in each.metrics)));
  const find = (arm, length, depth) => {
    const row = rows.find(each => armName(each.group) === arm && each.group.n_tokens === length);
    return row ? row.depths.find(each => each.depth === depth) : undefined;
  };
  return {
    title: "By depth and length",
    note: "Depth: where in the document the fact stands, 0 at its beginning. Length: tokens asked for.",
    height: 380,
    choices: {Arm: arms.map(arm => [arm, arm]), Quality: metrics.map(name => [name, metricLabel(name)])},
    draw: ({Arm: arm, Quality: metric}) => {
      const value = (length, depth) => (find(arm, length, depth) || {metrics: {}}).metrics[metric] ?? null;
      const values = rows.flatMap(row => row.depths.map(each => each.metrics[metric]))
                         .filter(each => typeof each === "number");
      const isShare = values.every(each => each >= 0 && each <= 1);
      const points =
          lengths.flatMap(length => depths.map(depth => ({length, depth, found: find(arm, length, depth)})))
              .filter(point => point.found);
      return {
        ...heatMap({
          x: lengths,
          y: depths,
          z: depths.map(depth => lengths.map(length => value(length, depth))),
          xTitle: "length",
          yTitle: "depth",
          unit: metric,
          range: isShare ? [0, 1] : [Math.min(...values), Math.max(...values)],
          isReversed: true
        }),
        table: () => table(
            arm + ": " + metricLabel(metric),
            [
              {title: "length", value: point => point.length},
              {title: "depth", value: point => Number(point.depth)},
              {title: metric, value: point => point.found.metrics[metric]},
              {title: "n", value: point => point.found.n},
            ],
            points),
      };
    },
  };
}

// What is worth looking at first: rows divided unevenly, then evenly, then all of them.
function keptOrder(row) {
  if (row.group.rows_evicted === 0) {
    return 2;
  }
  return new Set(row.arm.n_kept.flat()).size > 1 ? 0 : 1;
}

function keptFigure(rows) {
  const shown = rows.filter(row => row.arm.n_kept.length > 0);
  if (shown.length === 0) {
    return null;
  }
  return {
    title: "Kept rows of each layer and KV head",
    note: "Means over the samples, once the prompt was read and cut.",
    height: 420,
    choices: {Arm: armChoices([...shown].sort((a, b) => keptOrder(a) - keptOrder(b)))},
    draw: ({Arm: index}) => {
      const row = shown.find(each => String(each.index) === index);
      const kept = row.arm.n_kept;
      const heads = kept.reduce((longest, layer) => layer.length > longest.length ? layer : longest, [])
                        .map((_, head) => head);
      return {
        ...heatMap({
          x: heads,
          y: kept.map((_, layer) => layer),
          z: kept,
          xTitle: "KV head",
          yTitle: "layer",
          unit: "rows",
          range: [0, Math.max(1, ...kept.flat())],
          isReversed: true
        }),
        table: () => table(
            armName(row.group) + ": kept rows",
            [
              {title: "layer", value: each => each.layer},
              ...heads.map(head => ({title: "head " + head, value: each => each.layerRows[head]})),
            ],
            kept.map((layerRows, layer) => ({layer, layerRows}))),
      };
    },
  };
}
