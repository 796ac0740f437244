"use strict";
// Keeps the page as the document that the server keeps: plots are Bokeh's, tables are filled by `tables.js`.
(async () => {
  const { page, root, banner, say, fill_table, fill_status } = scalerPage;
  Bokeh.set_log_level("warn");
  const item = { token: page.token, root_ids: [], roots: {}, use_for_title: false };
  for (const [id, name] of page.roots) {
    item.root_ids.push(id);
    item.roots[id] = document.getElementById(name) ?? banner;
  }
  const path = new URL(page.path === "" ? "./" : page.path, window.location.href).pathname.replace(/\/$/, "");
  const opens = () => new Promise((resolve) => {
    const probe = new WebSocket(`${window.location.protocol.replace("http", "ws")}//${window.location.host}${path}/ws`,
      ["bokeh", page.token]);
    const end = (is_open) => { resolve(is_open); probe.close(); };
    probe.onopen = () => end(true);
    probe.onerror = () => end(false);
    setTimeout(() => end(false), 10000);  // whoever is in between may be silent
  });
  // Says why nothing new comes, until the page can be loaded again and then is kept.
  const come_back = async () => {
    const ask = (method) => fetch(window.location.href, { method }).catch(() => null);
    const answer = await ask("HEAD");
    if (answer?.status === 403) return say("scaler_ui was started again: open the address that it has printed");
    if (!answer?.ok) {
      say("the dashboard does not answer: is scaler_ui running, and this computer connected to it?");
    } else if (await opens()) {
      return window.location.reload();
    } else if ((await ask("POST"))?.status === 403) {  // which has an origin, as a socket has, and changes nothing
      say(`nothing new comes: scaler_ui takes no connection of ${window.location.origin}. Start it with ` +
        `--allow-origin ${window.location.origin}`);
    } else {
      say("nothing new comes: the WebSocket that brings it can't be opened, so a proxy in front of scaler_ui does not " +
        "pass it on (nginx: the headers Upgrade and Connection, see docs/dashboard.md). It is tried again");
    }
    setTimeout(come_back, 2000);
  };
  const late = setTimeout(() => say("nothing new comes yet: the WebSocket that brings it is not open"), 15000);
  await Bokeh.embed.embed_items({}, [item], path, null);
  clearTimeout(late);
  const live = Bokeh.documents.at(-1);
  if (live === undefined) {
    say("the connection that brings new figures was not opened: looking for the reason");
    return setTimeout(come_back, 1000);
  }
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
  performance.mark("scaler-ready");
  live.on_event("connection_lost", () => {
    say("the dashboard does not answer: is scaler_ui running, and this computer connected to it?");
    setTimeout(come_back, 1000);
  });
})();
