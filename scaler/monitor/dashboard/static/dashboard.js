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
  performance.mark("scaler-ready");
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
