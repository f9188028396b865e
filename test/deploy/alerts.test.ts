/** The alert rules and the dashboard name metrics that a node exports, and each alert has its page. */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { parse } from 'yaml';
import { refreshBackups } from '../../src/backup/gauge.js';
import { createMetrics } from '../../src/node/metrics.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { environmentOf } from '../support/servers/debian-package.js';
import { findPromtool } from '../support/servers/programs.js';

const run = promisify(execFile);

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly labels: { readonly severity: string };
  readonly annotations: { readonly summary: string; readonly runbook_url: string };
}
const groups = (parse(readFileSync('docs/alerts.yml', 'utf8')) as { groups: { rules: Rule[] }[] }).groups;
const rules = groups.flatMap((group) => group.rules);
const dashboard = JSON.parse(readFileSync('docs/grafana-dashboard.json', 'utf8')) as {
  panels: { id: number; title: string; targets: { expr: string }[] }[];
};
const expressions = [
  ...rules.map(({ expr }) => expr),
  ...dashboard.panels.flatMap(({ targets }) => targets.map(({ expr }) => expr)),
];

let relay: TestNode;
beforeAll(async () => {
  relay = await startTestNode({});
});
afterAll(() => relay.close());

/** Prometheus adds these. A label `job` of ours becomes `exported_job`, beside the name of the scrape. */
const ADDED = new Set(['instance', 'job', 'le']);

it('every metric of the rules and of the dashboard is exported by a node', async () => {
  const text = await (await fetch(`${relay.http}/metrics`)).text();
  const exported = new Set([...text.matchAll(/^# TYPE (\w+)/gm)].map((match) => match[1]!));
  expect(exported.size).toBeGreaterThan(40);
  const named = expressions.flatMap((expr) => expr.match(/\b(minato|nodejs|process)_\w+/g) ?? []);
  expect(named.length).toBeGreaterThan(50);
  const known = (name: string) =>
    exported.has(name) || exported.has(name.replace(/_(bucket|sum|count)$/, ''));
  expect([...new Set(named)].filter((name) => !known(name))).toEqual([]);
});

it('the state of the backups is exported', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'minato-gauge-'));
  const metrics = createMetrics();
  const value = async (name: string) =>
    (await metrics.registry.getSingleMetric(name)!.get()).values.map((one) => one.value);
  const refresh = () =>
    refreshBackups({
      pool: relay.database.pool,
      folder,
      metrics,
      now: () => Date.parse('2026-11-17T04:00:00Z'),
    });
  await refresh();
  // The server of the tests archives nothing.
  expect(await value('minato_wal_archive_failing')).toEqual([1]);
  expect(await value('minato_backup_age_seconds')).toEqual([Number.POSITIVE_INFINITY]);
  await writeFile(join(folder, 'base-20261116T030000Z.tar.gz'), '');
  await writeFile(join(folder, 'base-20261117T030000Z.tar.gz.sealed'), '');
  await writeFile(join(folder, 'base-20261117T033000Z.tar.gz.part'), '');
  await refresh();
  expect(await value('minato_backup_age_seconds')).toEqual([3_600]);
  await rm(folder, { recursive: true });
});

it('every label that they select or group by is one of the metric', () => {
  const { registry } = createMetrics();
  const wrong = expressions.flatMap((expr) => {
    const names = expr.match(/\bminato_\w+/g) ?? [];
    const labels = names.flatMap((name) => {
      const metric = registry.getSingleMetric(name.replace(/_(bucket|sum|count)$/, '')) as unknown as
        | { readonly labelNames: readonly string[] }
        | undefined;
      return metric?.labelNames ?? [];
    });
    const asked = [
      ...[...expr.matchAll(/by \(([^)]*)\)/g)].flatMap((match) => match[1]!.split(/, */)),
      ...[...expr.matchAll(/\{([^}]*)\}/g)].flatMap((match) =>
        [...match[1]!.matchAll(/(\w+)(?==|!|~)/g)].map((one) => one[1]!),
      ),
    ];
    return asked
      .filter((label) => label !== '' && !ADDED.has(label))
      .filter((label) => !labels.includes(label.replace(/^exported_/, '')))
      .map((label) => `${label} in ${expr}`);
  });
  expect(wrong).toEqual([]);
});

it('every alert has its page in the runbook, and every page its alert', () => {
  const pages = [...readFileSync('docs/runbook.md', 'utf8').matchAll(/^### (\w+)$/gm)].map(
    (match) => match[1]!,
  );
  const names = rules.map(({ alert }) => alert);
  expect(pages.sort()).toEqual([...names].sort());
  expect(new Set(names).size).toBe(names.length);
  for (const { alert, labels, annotations } of rules) {
    expect(annotations.runbook_url).toBe(`docs/runbook.md#${alert.toLowerCase()}`);
    expect(annotations.summary).not.toBe('');
    expect(['page', 'ticket']).toContain(labels.severity);
  }
});

it('panels of the dashboard have ids of their own', () => {
  const ids = dashboard.panels.map(({ id }) => id);
  expect(new Set(ids).size).toBe(ids.length);
});

it("Prometheus' own tool accepts the rules, and they fire when they should", async () => {
  const promtool = await findPromtool();
  const options = { env: environmentOf(promtool), timeout: 60_000 };
  expect((await run(promtool.path, ['check', 'rules', 'docs/alerts.yml'], options)).stdout).toContain(
    `SUCCESS: ${rules.length} rules found`,
  );
  expect(
    (await run(promtool.path, ['test', 'rules', 'test/fixtures/alerts.test.yml'], options)).stdout,
  ).toContain('SUCCESS');
  expect(
    (await run(promtool.path, ['check', 'config', '--syntax-only', 'deploy/compose/prometheus.yml'], options))
      .stdout,
  ).toContain('SUCCESS');
});
