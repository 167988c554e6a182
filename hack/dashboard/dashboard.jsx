// Draws the panels of Grafana's dashboard with Grafana's own components, from what Prometheus answers. hack/pictures serves it.
//
//	/?from=SECONDS&to=SECONDS&theme=light|dark

import { createTheme, dateTime, FieldType, getDisplayProcessor, ThemeContext, ThresholdsMode } from '@grafana/data';
import { BigValue, GlobalStyles, PanelChrome, TimeSeries } from '@grafana/ui';
import { createRoot } from 'react-dom/client';

const asked = new URLSearchParams(location.search);
const from = Number(asked.get('from')), to = Number(asked.get('to'));
const theme = createTheme({ colors: { mode: asked.get('theme') } });
const columns = 24, rowHeight = 38, gap = 8, width = 1400;

// In seconds. Grafana takes a rate over four scrapes, too.
const step = 5, rateInterval = '20s';

async function query({ expr, legendFormat = '' }) {
  const written = expr.replaceAll('$__rate_interval', rateInterval).replaceAll('$registry', '.*').replaceAll('$instance', '.*');
  const url = '/api/v1/query_range?' + new URLSearchParams({ query: written, start: from, end: to, step });
  const { status, error, data } = await (await fetch(url)).json();
  if (status !== 'success') {
    throw new Error(`${written}: ${error}`);
  }
  return data.result.map(({ metric, values }) => ({ name: legendFormat.replace(/{{(\w+)}}/g, (_, label) => metric[label] ?? ''), values }));
}

// frameOf makes Grafana's fields of a series. Where Prometheus has no point it is null, so that the line ends.
function frameOf(series, config, seriesIndex) {
  const { name } = series, points = new Map(series.values.map(([at, value]) => [at, Number(value)]));
  const times = Array.from({ length: (to - from) / step + 1 }, (_, i) => from + i * step);
  const time = { name: 'time', type: FieldType.time, config: {}, values: times.map((at) => at * 1000) };
  const values = times.map((at) => points.get(at) ?? null);
  const value = { name, type: FieldType.number, config, values, state: { seriesIndex, displayName: name } };
  for (const field of [time, value]) {
    field.display = getDisplayProcessor({ field, theme, timeZone: 'utc' });
  }
  return { fields: [time, value], length: times.length };
}

function Graph({ panel, width, height }) {
  const config = { color: { mode: 'palette-classic' }, custom: { showPoints: 'never' }, ...panel.fieldConfig.defaults };
  const range = { from: dateTime(from * 1000), to: dateTime(to * 1000) };
  return <TimeSeries frames={panel.series.map((series, i) => frameOf(series, config, i))} width={width} height={height}
    timeRange={{ ...range, raw: range }} timeZone="utc" legend={{ calcs: [], ...panel.options.legend }} />;
}

function Stat({ panel, width, height }) {
  const { thresholds, ...defaults } = panel.fieldConfig.defaults;
  const steps = thresholds.steps.map((each) => ({ ...each, value: each.value ?? -Infinity }));
  const config = { ...defaults, thresholds: { mode: ThresholdsMode.Absolute, steps } };
  const count = panel.series.length;
  return panel.series.map((series, i) => {
    const [x, y] = frameOf(series, config, i).fields;
    const last = y.display(y.values.findLast((value) => value !== null));
    return <BigValue key={i} theme={theme} width={width / count} height={height} count={count} sparkline={{ x, y }}
      value={{ ...last, title: count > 1 ? series.name : undefined }} colorMode={panel.options.colorMode} graphMode="area" />;
  });
}

function NoData({ width, height }) {
  return <div style={{ width, height, display: 'grid', placeItems: 'center', color: theme.colors.text.secondary }}>No data</div>;
}

function Panel({ panel }) {
  const { x, y, w, h } = panel.gridPos;
  const column = (width + gap) / columns;
  const place = { position: 'absolute', left: x * column, top: y * rowHeight, width: w * column - gap, height: h * rowHeight - gap };
  if (panel.type === 'row') {
    return <h4 style={{ ...place, margin: 0, paddingTop: 4 }}>{panel.title}</h4>;
  }
  const Draw = panel.series.length === 0 ? NoData : { stat: Stat, timeseries: Graph }[panel.type];
  return (
    <div style={place}>
      <PanelChrome title={panel.title} width={place.width} height={place.height}>
        {(width, height) => <Draw panel={panel} width={width} height={height} />}
      </PanelChrome>
    </div>
  );
}

const { panels } = await (await fetch('/grafana.json')).json();
for (const panel of panels) {
  panel.series = (await Promise.all((panel.targets ?? []).map(query))).flat();
}
createRoot(document.body).render(
  <ThemeContext.Provider value={theme}>
    <GlobalStyles />
    <main style={{ position: 'relative', margin: 16 }}>{panels.map((panel, i) => <Panel key={i} panel={panel} />)}</main>
  </ThemeContext.Provider>,
);
