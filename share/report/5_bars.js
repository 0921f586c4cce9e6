// Bars of time and memory, an arm below the other.

function barFigure(title, note, axisTitle, rows, series, columns) {
  const shown = rows.filter(row => row.group.n > 0);
  return {
    title,
    note,
    height: 110 + shown.length * (series.length > 1 ? 26 : 20),
    choices: {},
    draw: (_, isNarrow) => ({
      traces: series.map(
          (each, i) => ({
            type: "bar",
            orientation: "h",
            name: each.name,
            showlegend: true,
            marker: {color: COLOURS[i]},
            y: shown.map((_, place) => place),
            x: shown.map(each.value),
            text: shown.map(row => plotText(armName(row.group)) + "<br>" + each.name + " " + each.text(row)),
            textposition: "none",
            hovertemplate: "%{text}<extra></extra>",
          })),
      layout: {
        barmode: "group",
        bargap: .25,
        showlegend: true,
        legend: {orientation: "h", x: 0, y: 1, yanchor: "bottom"},
        xaxis: {title: {text: axisTitle}, rangemode: "tozero"},
        yaxis: {
          tickvals: shown.map((_, place) => place),
          ticktext: shown.map(row => plotText(shortArmName(row, isNarrow ? 24 : 44))),
          autorange: "reversed",
          automargin: true,
          tickfont: {size: isNarrow ? 9 : 11},
          showgrid: false
        },
      },
      table: () =>
          table(title, [{title: "arm", kind: TEXT, value: row => armName(row.group)}, ...columns], shown),
    }),
  };
}

function timeFigure(rows) {
  const milliseconds = name => ({title: name + " (ms)", value: row => row.group[name + "_ms"]});
  const series = name => ({
    name,
    value: row => row.group[name + "_ms"],
    text: row => numberText(row.group[name + "_ms"]) + " ms"
  });
  return barFigure(
      "Time",
      "Medians over the samples: cutting the cache, and answering. Times are of the machine that measured.",
      "milliseconds", rows, [series("compress"), series("answer")],
      [milliseconds("compress"), milliseconds("answer")]);
}

function memoryFigure(rows) {
  const series = (name, key) =>
      ({name, value: row => row.group[key] / MIB, text: row => bytesText(row.group[key])});
  const column = (title, key) => ({title, value: row => row.group[key], text: bytesText});
  return barFigure(
      "Memory",
      "Means over the samples: rows held once the prompt was read and cut, the most that was ever held, and what the policy itself remembers.",
      "MiB", rows,
      [series("held", "kv_bytes"), series("peak", "kv_peak_bytes"), series("policy", "policy_bytes")],
      [column("held", "kv_bytes"), column("peak", "kv_peak_bytes"), column("policy", "policy_bytes")]);
}
