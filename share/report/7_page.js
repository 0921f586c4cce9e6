// The page from top to bottom: what must not be believed, the folders, then each task and length.

function rowsOf(panel) {
  const folder = data.folders[panel.folder];
  return panel.groups.map(index => ({index, group: folder.summary.groups[index], arm: folder.arms[index]}));
}

function folderName(folder) {
  return folder.name + " (" + folder.model + ")";
}

// Each note once, with the arms that it is about.
function panelNotes(rows) {
  const arms = new Map();
  for (const {group} of rows) {
    for (const note of group.notes.concat(group.refused.map(reason => "refused: " + reason))) {
      arms.set(note, (arms.get(note) || []).concat(armName(group)));
    }
  }
  return [...arms].map(
      ([note, names]) => element(
          "li", {}, note,
          element(
              "span", {class: "muted"},
              names.length === rows.length ? " – all arms" :
                  names.length > 6 ? " – " + names.length + " of " + rows.length + " arms, marked below" :
                                     " – " + names.join("; "))));
}

function warnings(title, items, level) {
  return items.length === 0 ?
      null :
      element(
          "div", {class: "warnings", role: "note"}, element(level, {}, title), element("ul", {}, ...items));
}

function foldersSection() {
  const problems =
      data.notes.map(note => element("li", {}, note))
          .concat(data.folders.flatMap(
              folder => folder.problems.map(problem => element("li", {}, folder.name + ": " + problem))));
  const list = key => row => Array.isArray(row.config[key]) ? row.config[key].join(", ") : "";
  const value = key => row => row.config[key] === undefined ? "" : String(row.config[key]);
  return element(
      "section", {id: "folders"}, warnings("What is wrong with these results", problems, "h2"),
      element("h2", {}, "What was measured"),
      table(
          "Folders of results",
          [
            {title: "folder", kind: TEXT, value: row => row.name},
            {title: "model", kind: TEXT, value: row => row.model},
            {title: "tasks", kind: TEXT, value: list("tasks")},
            {title: "lengths", kind: TEXT, value: list("lengths")},
            {title: "n", value: row => row.config.n},
            {title: "seed", value: row => row.config.seed},
            {title: "weights", kind: TEXT, value: value("weights")},
            {title: "keys", kind: TEXT, value: value("cache_type_k")},
            {title: "values", kind: TEXT, value: value("cache_type_v")},
            {title: "winnow", kind: TEXT, value: value("winnow")},
          ],
          data.folders),
      ...data.folders.map(
          folder => unfolding(
              "All options of " + folder.name,
              () => element(
                  "div", {class: "scroll", tabindex: "0"},
                  element("pre", {}, JSON.stringify(folder.config, null, 2))))));
}

function panelElement(panel, depth) {
  const {rows} = panel;
  const figures =
      (cuts(rows) ?
           [qualityFigure(panel, rows), depth, keptFigure(rows), timeFigure(rows), memoryFigure(rows)] :
           [layersFigure(panel, rows), headsFigure(panel, rows)])
          .filter(Boolean);
  const isMeasured = rows.some(row => row.group.n > 0);

  return element(
      "article", {class: "panel"}, element("h3", {}, folderName(data.folders[panel.folder])),
      warnings("What must not be believed", panelNotes(rows), "h3"), resultsTable(panel, rows),
      isMeasured ? unfolding("Every metric", () => allMetricsTable(rows)) : null,
      rows.some(row => row.arm.answers.length > 0) ?
          unfolding("What was answered", () => answersTable(rows)) :
          null,

      isMeasured ? element("div", {class: "figures"}, ...figures.map(figureElement)) :
                   element("p", {}, "Nothing could be measured."));
}

// The same task and length of all folders, side by side.
function sections() {
  const made = new Map();
  const withDepths = new Set();
  for (const panel of data.panels) {
    panel.rows = rowsOf(panel);
  }
  for (const panel of data.panels) {
    const title = panel.task + ", " + panel.n_tokens + " tokens";
    const task = panel.folder + " " + panel.task;
    const depth = withDepths.has(task) ?
        null :
        depthFigure(data.panels.filter(each => each.folder === panel.folder && each.task === panel.task));
    withDepths.add(task);
    if (!made.has(title)) {
      made.set(title, element("div", {class: "panels"}));
    }
    made.get(title).append(panelElement(panel, depth));
  }
  return [...made].map(([title, panels], i) => ({
                         title,
                         id: "section-" + i,
                         section: element("section", {id: "section-" + i}, element("h2", {}, title), panels)
                       }));
}

function buildPage() {
  const parts = sections();
  document.getElementById("main").replaceChildren(foldersSection(), ...parts.map(part => part.section));
  document.getElementById("contents")
      .append(element(
          "ul", {},
          ...parts.map(part => element("li", {}, element("a", {href: "#" + part.id}, part.title)))));
  document.getElementById("footer").append(
      "Made by winnow " + data.winnow +
      ". Cache bytes: the rows held once the prompt was read and cut. Differences are paired, over the same prompts; p-values are exact and corrected by Holm’s procedure over all arms of a task and length.");
}

startTheme();
buildPage();
startResizing();
