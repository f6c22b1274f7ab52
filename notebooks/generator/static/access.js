// What the theme leaves out for keyboards and screen readers.
for (const caption of document.querySelectorAll("p.caption[role=heading]")) caption.ariaLevel = "2";
for (const text of document.querySelectorAll("pre")) text.tabIndex = 0;
for (const table of document.querySelectorAll(".table-wrapper")) table.tabIndex = 0;
for (const [name, label] of [["sidebar-drawer", "All pages"], ["toc-drawer", "On this page"]])
  for (const aside of document.getElementsByClassName(name)) aside.ariaLabel = label;
for (const head of document.querySelectorAll("th"))
  if (!head.textContent.trim()) head.replaceWith(document.createElement("td"));
