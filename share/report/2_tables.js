// Tables: a column is {title, value(row), text(value, row), kind}; the exact value stands in data-value.

const TEXT = "text";

function valueText(value, kind) {
  if (typeof value === "number") {
    return numberText(value);
  }
  const text = value === null || value === undefined ? "" : String(value);
  return kind === TEXT ? breakable(text) : text;
}

function cell(column, row, isFirst) {
  const value = column.value(row);
  const shown = column.text ? column.text(value, row) : valueText(value, column.kind);
  const kind = [column.kind, column.style ? column.style(value, row) : null].filter(Boolean).join(" ");
  const attributes = {class: kind || null};
  if (typeof value === "number") {
    attributes["data-value"] = value;
    attributes.title = value;
  }
  if (isFirst) {
    attributes.scope = "row";
  }
  return element(isFirst ? "th" : "td", attributes, ...[].concat(shown));
}

function table(caption, columns, rows, rowClass) {
  const head = element(
      "tr", {},
      ...columns.map(column => element("th", {scope: "col", class: column.kind || null}, column.title)));
  const body = rows.map(
      row => element(
          "tr", {class: rowClass ? rowClass(row) : null},
          ...columns.map((column, i) => cell(column, row, i === 0))));
  return element(
      "div", {class: "scroll", tabindex: "0", role: "region", "aria-label": caption},
      element(
          "table", {}, element("caption", {}, caption), element("thead", {}, head),
          element("tbody", {}, ...body)));
}

// "0.25 [0.1, 0.4]" of {mean, low, high}.
function meanCell(mean, n) {
  if (!mean) {
    return "–";
  }
  return n < 2 ?
      [numberText(mean.mean)] :
      [numberText(mean.mean), element("span", {class: "interval"}, " " + intervalText(mean.low, mean.high))];
}

function metricColumn(name) {
  return {
    title: name,
    value: row => row.group.metrics[name] ? row.group.metrics[name].mean : null,
    text: (value, row) => meanCell(row.group.metrics[name], row.group.n),
  };
}

function differenceColumns(which, other, primary) {
  const of = row => row.group[which];
  return [
    {
      title: primary + " − " + other,
      value: row => of(row) ? of(row).difference : null,
      text: (value, row) => of(row) ?
          [
            numberText(value),
            element("span", {class: "interval"}, " " + intervalText(of(row).low, of(row).high))
          ] :
          ""
    },
    {
      title: "p (Holm)",
      value: row => of(row) ? of(row).p_holm : null,
      text: value => value === null ? "" :
          value < 0.001             ? "< 0.001" :
                                      value.toFixed(3)
    },
    {
      title: "in words",
      kind: TEXT,
      value: row => of(row) ? of(row).verdict : "",
      style: value => value === "higher" || value === "lower" ? "decided" : null
    },
  ];
}

function isDoubtful(row) {
  return row.group.notes.length > 0 || row.group.refused.length > 0;
}

function notesColumn(rows) {
  const texts = row => row.group.notes.concat(row.group.refused.map(reason => "refused: " + reason));
  return rows.some(isDoubtful) ?
      [{title: "what must not be believed", kind: "text note wrap", value: row => texts(row).join("; ")}] :
      [];
}

const HEADLINES = {
  nll: ["ppl", "kl", "top1", "top5"],
  score: ["score", "gold_nll"],
  perturbation: ["perturbation"],
  spearman: ["spearman", "mean", "positive", "partial"],
  kappa: ["kappa", "positive", "certain", "ratio", "ratio_of_abs", "energy"]
};

// Whether caches are cut, and not heads looked at.
function cuts(rows) {
  return !rows.some(row => row.group.heads);
}

// All arms of a panel, with what may be said of them.
function resultsTable(panel, rows) {
  const has = name => rows.some(row => row.group.metrics[name]);
  const [headline, ...others] = (HEADLINES[panel.primary] || []).filter(has);
  const front = new Set(panel.fronts.filter(each => each.metric === headline).flatMap(each => each.groups));
  const columns = [
    {
      title: "policy",
      kind: TEXT,
      value: row => row.group.policy,
      text: (value, row) => front.has(row.index) ?
          [...breakable(value), element("span", {class: "badge"}, "front")] :
          breakable(value)
    },
    ...(rows.some(row => row.group.question !== "none") ? [{
      title: "question",
      kind: TEXT,
      value: row => row.group.question === "none" ? "" : row.group.question
    }] :
                                                          []),
    {title: "n", value: row => row.group.n},
    ...(cuts(rows) ?
            [
              {title: "kept", value: row => row.group.n ? row.group.kept_fraction : null, text: percentText},
              {title: "cache bytes", value: row => row.group.n ? row.group.kv_bytes : null, text: bytesText},
            ] :
            []),
    ...(headline ? [metricColumn(headline)] : []),
    ...(cuts(rows) ? differenceColumns("to_full", "full’s", panel.primary) : []),
    ...(rows.some(row => row.group.to_baseline) ?
            differenceColumns("to_baseline", "baseline’s", panel.primary) :
            []),
    ...others.map(metricColumn),
    ...notesColumn(rows),
  ];
  return table(
      cuts(rows) ?
          "Means with 95 % intervals, paired differences to the full cache; “front”: on the Pareto front of " +
              (headline || "quality") + " and bytes" :
          "Means with 95 % intervals over the samples",
      columns, rows, row => isDoubtful(row) ? "doubtful" : null);
}

function allMetricsTable(rows) {
  const names = [...new Set(rows.flatMap(row => Object.keys(row.group.metrics)))];
  return table(
      "Every metric",
      [
        {title: "arm", kind: TEXT, value: row => armName(row.group)},
        ...names.map(metricColumn),
        {title: "rows evicted", value: row => row.group.rows_evicted},
        {title: "scores that were NaN", value: row => row.group.nan_scores},
      ],
      rows);
}

function answersTable(rows) {
  const answers = rows.flatMap(row => row.arm.answers.map(answer => ({...answer, group: row.group})));
  return table(
      "What was answered to the first prompts",
      [
        {title: "arm", kind: TEXT, value: row => armName(row.group)},
        {title: "prompt", kind: TEXT, value: row => row.id},
        {title: "score", value: row => row.score},
        {title: "answer", kind: "text wrap", value: row => row.answer},
      ],
      answers);
}
