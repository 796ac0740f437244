"use strict";
// Fills the page from the document that the server keeps: plots are Bokeh's, tables are made here, as text, never as HTML.
(async () => {
  const root = document.documentElement;
  Bokeh.set_log_level("warn");
  const page = JSON.parse(document.getElementById("page").textContent);
  const here = new URL(window.location.href);
  if (!here.searchParams.has("theme") && !/(^|; )scaler_ui_theme=/.test(document.cookie)
      && window.matchMedia("(prefers-color-scheme: dark)").matches) {
    here.searchParams.set("theme", "dark");
    window.location.replace(here);
    return;
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
      cell.textContent = text;
    }
    cell.title = kind === "text" ? text : "";
  };
  // Cells stay where they are and change their text: what is selected stays selected, and nothing flickers.
  const fill_table = (table, source) => {
    const columns = JSON.parse(table.dataset.columns);
    const body = table.tBodies[0];
    const data = columns.map(([key, kind]) => [kind, source.get_column(key) ?? [], source.get_column(`${key}_link`)]);
    const length = data[0][1].length;
    table.dataset.rows = length;
    if (length === 0) {
      const row = document.createElement("tr");
      const cell = document.createElement("td");
      cell.colSpan = columns.length;
      cell.className = "empty";
      cell.textContent = table.dataset.empty;
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
    const [banner_text, headline, parts, note, clock] =
      ["banner", "headline", "parts", "note", "clock"].map((key) => source.get_column(key)?.[0]);
    say(banner_text ?? "");
    set(document.getElementById("headline"), headline ?? "");
    if (banner_text === "") {
      set(document.getElementById("note"), note);
      set(document.getElementById("clock"), clock);
      fill_parts(parts);
    }
    root.dataset.number = source.get_column("number")?.[0] ?? 0;
  };

  for (const head of document.querySelectorAll("th")) {
    if (head.dataset.key === page.sort) { head.classList.add("sorted"); head.classList.toggle("up", page.up); }
  }
  const item = { token: page.token, root_ids: [], roots: {}, use_for_title: false };
  for (const [id, name] of page.roots) {
    item.root_ids.push(id);
    item.roots[id] = document.getElementById(name) ?? banner;
  }
  const path = new URL(page.path === "" ? "./" : page.path, window.location.href).pathname.replace(/\/$/, "");
  await Bokeh.embed.embed_items({}, [item], path, null);
  const live = Bokeh.documents.at(-1);
  const bind = (name, fill) => {
    const source = live.get_model_by_name(name);
    if (!source) return;
    const show = () => fill(source);
    source.properties.data.change.connect(show);
    show();
  };
  for (const table of document.querySelectorAll("table[data-source]")) {
    bind(table.dataset.source, (source) => fill_table(table, source));
  }
  bind("status", fill_status);
  root.classList.add("ready");
  live.on_event("connection_lost", () => {
    say("the dashboard does not answer: is scaler_ui running, and this computer connected to it?");
    const again = async () => {
      const answer = await fetch(window.location.href, { method: "HEAD" }).catch(() => null);
      if (answer?.ok) window.location.reload();
      else if (answer?.status === 403) say("scaler_ui was started again: open the address that it has printed");
      else setTimeout(again, 2000);
    };
    setTimeout(again, 1000);
  });
})();
