// Runs before MLflow's own scripts in the page that `marin ui` serves: where its pages begin, and what they show first.
// What somebody chose since, in this browser, stays.
(() => {
  const home = document.currentScript.dataset.home;
  const columns = JSON.parse(document.currentScript.dataset.columns);
  const always = {
    "mlflow.workflowType_v1": "machine_learning",
    "mlflow.settings.telemetry.enabled_v1": false,
    "mlflow.telemetry.info.alert.dismissed_v1": true,
    "mlflow.assistant.panelOpen_v1": false,
    "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": true,
  };
  for (const [key, value] of Object.entries(always)) localStorage.setItem(key, JSON.stringify(value));

  // The columns of an experiment whose list nobody has arranged yet. MLflow's other defaults are told too, because it
  // takes what it finds as the whole.
  const narrow = innerWidth < 700; // name and time stay in sight when the rest is scrolled
  const widths = { "attributes.`Run Name`": narrow ? 150 : 230, runDateAndNestInfo: narrow ? 40 : 140, ...columns, duration: 75 };
  const untouched = JSON.stringify({
    searchFilter: "", orderByKey: "attributes.start_time", orderByAsc: false, startTime: "ALL", lifecycleFilter: "Active",
    datasetsFilter: [], modelVersionFilter: "All Runs", selectedColumns: Object.keys(columns),
    columnOrder: Object.keys(widths), columnWidths: widths,
    runsExpanded: {}, runsPinned: [], runsHidden: [], runsVisibilityMap: {}, runsHiddenMode: "FIRST_10_RUNS",
    viewMaximized: false, runListHidden: false, isAccordionReordered: false, useGroupedValuesInCharts: true,
    hideEmptyCharts: true, groupBy: null, groupsExpanded: {}, autoRefreshEnabled: true,
    globalLineChartConfig: { xAxisKey: "step", lineSmoothness: 0, selectedXAxisMetricKey: "" },
  });
  const read = Storage.prototype.getItem;
  Storage.prototype.getItem = function (key) {
    const found = read.call(this, key);
    return found === null && /^MLflowLocalStorage-[\d.]+-ExperimentPage-/.test(key) ? untouched : found;
  };

  const atStart = () => ["", "#", "#/"].includes(location.hash);
  if (atStart()) location.replace(home);
  addEventListener("hashchange", () => atStart() && location.replace(home));
  addEventListener("click", (event) => {
    if (event.target.closest?.('a[href="#/"]')) {
      event.preventDefault();
      event.stopPropagation();
      location.assign(home);
    }
  }, true);
})();
