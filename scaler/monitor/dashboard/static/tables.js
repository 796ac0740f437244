"use strict";
// Fills the page's tables, as text, never as HTML: at once with what came with the page, before Bokeh is loaded and the
// plots are drawn, and then for `dashboard.js` with what the document has. What it shares is in `scalerPage`.
const scalerPage = (() => {
  const root = document.documentElement;
  const page = JSON.parse(document.getElementById("page").textContent);
  const here = new URL(window.location.href);
  if (!here.searchParams.has("theme") && !/(^|; )scaler_ui_theme=/.test(document.cookie)
      && window.matchMedia("(prefers-color-scheme: dark)").matches) {
    here.searchParams.set("theme", "dark");
    window.location.replace(here);
    return null;
  }

  const banner = document.getElementById("banner");
  const say = (text) => {
    banner.hidden = text === "";
    if (banner.textContent !== text) banner.textContent = text;
    root.classList.toggle("stale", text !== "");
  };
  const set = (element, text) => { if (element && element.textContent !== text) element.textContent = text; };

  const fill_bar = (cell, text) => {
    if (cell.dataset.bar === text) return;
    cell.dataset.bar = text;
    const bar = document.createElement("div");
    bar.className = "progress";
    const words = [];
    for (const part of text === "" ? [] : text.split(",")) {
      const [name, percent] = part.split(":");
      const span = document.createElement("span");
      span.className = `is-${name}`;
      span.style.width = `${percent}%`;
      bar.append(span);
      words.push(`${name} ${Number(percent).toFixed(1)}%`);
    }
    bar.title = words.join(", ");
    cell.replaceChildren(bar);
  };
  const fill_cell = (cell, kind, text, link) => {
    if (kind === "bar") return fill_bar(cell, text);
    if (cell.dataset.text === text && (cell.dataset.link ?? "") === link) return;
    cell.dataset.text = text;
    cell.dataset.link = link;
    if (link) {
      const anchor = document.createElement("a");
      anchor.href = link;
      anchor.textContent = text;
      cell.replaceChildren(anchor);
    } else {
      const words = document.createElement("bdi");
      words.textContent = text;
      cell.replaceChildren(words);
    }
    cell.title = kind === "number" ? "" : text;
  };
  // Cells stay where they are and change their text: what is selected stays selected, and nothing flickers.
  const fill_table = (table, source) => {
    const columns = JSON.parse(table.dataset.columns);
    const body = table.tBodies[0];
    const data = columns.map(([key, kind]) => [kind, source.get_column(key) ?? [], source.get_column(`${key}_link`)]);
    const length = data[0][1].length;
    table.dataset.rows = length;
    // the last lines of output stay in sight, unless somebody has gone up to older ones
    const follows = table.closest(".lines") !== null && body.scrollTop + body.clientHeight > body.scrollHeight - 8;
    if (length === 0) {
      const row = document.createElement("tr");
      const cell = document.createElement("td");
      cell.colSpan = columns.length;
      cell.className = "empty";
      cell.textContent = root.dataset.number > 0 ? table.dataset.empty : "";  // before the first snapshot nobody knows
      row.append(cell);
      body.replaceChildren(row);
      return;
    }
    if (body.querySelector(".empty")) body.replaceChildren();
    while (body.rows.length > length) body.deleteRow(-1);
    while (body.rows.length < length) {
      const row = body.insertRow();
      for (const [key, kind] of columns) { const cell = row.insertCell(); cell.className = kind; cell.dataset.key = key; }
    }
    for (let at = 0; at < length; at++) {
      const cells = body.rows[at].cells;
      data.forEach(([kind, values, links], column) =>
        fill_cell(cells[column], kind, String(values[at]), links ? String(links[at]) : ""));
    }
    if (follows) body.scrollTop = body.scrollHeight;
  };
  const fill_parts = (parts) => {
    const place = document.getElementById("parts");
    const now = Math.min(page.part, parts);
    if (!place || place.dataset.parts === `${now}/${parts}`) return;
    place.dataset.parts = `${now}/${parts}`;
    place.replaceChildren();
    if (parts === 1) return;
    const link = (number, words) => {
      const anchor = document.createElement("a");
      const to = new URL(window.location.href);
      to.searchParams.set("part", number);
      anchor.href = to.search;
      anchor.textContent = words;
      if (number < 1 || number > parts || number === now) anchor.className = "off";
      place.append(anchor);
    };
    link(1, "« first");
    link(now - 1, "‹ previous");
    place.append(` page ${now.toLocaleString("en")} of ${parts.toLocaleString("en")} `);
    link(now + 1, "next ›");
    link(parts, "last »");
  };
  const fill_status = (source) => {
    const [banner_text, headline, parts, note, clock, notice, is_quiet] =
      ["banner", "headline", "parts", "note", "clock", "notice", "notice_is_quiet"].map(
        (key) => source.get_column(key)?.[0]);
    say(banner_text ?? "");
    const said = document.getElementById("notice");
    said.hidden = !notice;
    said.classList.toggle("is-quiet", Boolean(is_quiet));
    set(said, notice ?? "");
    set(document.getElementById("headline"), headline ?? "");
    root.dataset.number = source.get_column("number")?.[0] ?? 0;
    if (root.dataset.number === "0") return;
    set(document.getElementById("note"), note);
    set(document.getElementById("clock"), clock);
    fill_parts(parts);
    for (const cell of document.querySelectorAll("td.empty")) set(cell, cell.closest("table").dataset.empty);
  };

  for (const head of document.querySelectorAll("th")) {
    if (head.dataset.key === page.sort) { head.classList.add("sorted"); head.classList.toggle("up", page.up); }
  }
  const sources = Object.fromEntries(Object.entries(page.cells).map(
    ([name, columns]) => [name, { get_column: (key) => columns[key] }]));
  fill_status(sources.status);
  for (const table of document.querySelectorAll("table[data-source]")) fill_table(table, sources[table.dataset.source]);
  if (root.dataset.number !== "0") performance.mark("scaler-data");

  // Bokeh takes a third of a second to be compiled, and plots longer to be drawn: the tables are painted before.
  const go_on = () => {
    for (const address of page.scripts.splice(0)) {
      const script = document.createElement("script");
      script.src = address;
      script.async = false;
      script.onerror = () => say("nothing new comes: a script of this page can't be loaded. Load the page again");
      document.head.append(script);
    }
  };
  requestAnimationFrame(() => setTimeout(go_on));
  setTimeout(go_on, 250);  // a page that nobody sees paints nothing
  return { page, root, banner, say, fill_table, fill_status };
})();
