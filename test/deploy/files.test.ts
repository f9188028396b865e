/** The files of deploy/: what can be checked without a cluster, a cloud or Docker. */
import { execFile } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { parse, parseAllDocuments, parseDocument, visit } from 'yaml';
import { defaultsOfVariables } from '../../src/node/config.js';
import { createMetrics } from '../../src/node/metrics.js';
import { ROLES } from '../../src/node/roles.js';
import { environmentOf } from '../support/servers/debian-package.js';
import { findSystemdAnalyze } from '../support/servers/programs.js';

const run = promisify(execFile);
const read = (path: string) => readFileSync(join('deploy', path), 'utf8');
const known = new Set(Object.keys(defaultsOfVariables()));
/** Names in a text that look like variables of the node, and are none. */
const unknownIn = (text: string) =>
  [...new Set(text.match(/\b(MINATO_[A-Z_]+[A-Z])\b/g) ?? [])].filter((name) => !known.has(name));

it('every variable of the node that a file of deploy sets exists', () => {
  const files = readdirSync('deploy', { recursive: true, encoding: 'utf8' }).filter((path) =>
    /\.\w+$|Dockerfile|Caddyfile/.test(path),
  );
  expect(files.length).toBeGreaterThan(15);
  expect(files.flatMap((path) => unknownIn(read(path)).map((name) => `${path}: ${name}`))).toEqual([]);
});

describe('Dockerfile', () => {
  const text = read('Dockerfile');
  const lines = text.replace(/\\\n/g, ' ').split('\n');
  const last = lines.slice(lines.findLastIndex((line) => line.startsWith('FROM ')));

  it('copies what exists, and everything that the package needs', () => {
    const copied = lines
      .filter((line) => line.startsWith('COPY ') && !line.includes('--from'))
      .flatMap((line) => line.split(/\s+/).slice(1, -1));
    expect(copied.filter((path) => !existsSync(path))).toEqual([]);
    const { files } = JSON.parse(readFileSync('package.json', 'utf8')) as { files: string[] };
    const kept = last.flatMap((line) => /^COPY --from=build \/build\/(\S+)/.exec(line)?.[1] ?? []);
    expect(kept).toEqual(expect.arrayContaining([...files, 'node_modules', 'package.json']));
    const ignored = read('Dockerfile.dockerignore').split('\n');
    expect(ignored).toEqual(expect.arrayContaining(['**/node_modules', 'data', '.git']));
    expect(files.filter((path) => path !== 'dist' && ignored.includes(path))).toEqual([]);
  });

  it('runs as an ordinary user, writes to its volumes only, and has a health check', () => {
    expect(last).toContain('USER 10001:10001');
    expect(last.find((line) => line.startsWith('VOLUME'))).toBe('VOLUME ["/data", "/backups"]');
    const check = last.join('\n').match(/HEALTHCHECK .* CMD (\[.*\])/)![1]!;
    expect((JSON.parse(check) as string[])[2]).toContain('/healthz');
    expect(last.join('\n')).not.toMatch(/apt-get|npm (ci|install)/);
  });
});

describe('compose', () => {
  interface Part {
    readonly volumes?: readonly string[];
    readonly image: string;
    readonly read_only: boolean;
    readonly cap_drop: readonly string[];
    readonly depends_on?: Record<string, unknown> | readonly string[];
    readonly configs?: readonly { readonly source: string }[];
  }
  const file = parse(read('compose/compose.yml'), { merge: true }) as {
    services: Record<string, Part>;
    volumes: Record<string, unknown>;
    configs: Record<string, unknown>;
  };

  it('mounts files that exist and volumes that it declares, and depends on its own services', () => {
    for (const [name, service] of Object.entries(file.services)) {
      for (const [source] of (service.volumes ?? []).map((volume) => volume.split(':')))
        if (source!.startsWith('.'))
          expect(existsSync(resolve('deploy/compose', source!)), source).toBe(true);
        else expect(Object.keys(file.volumes), name).toContain(source);
      const needed = service.depends_on ?? [];
      for (const other of Array.isArray(needed) ? needed : Object.keys(needed))
        expect(Object.keys(file.services)).toContain(other);
      for (const { source } of service.configs ?? []) expect(Object.keys(file.configs)).toContain(source);
      expect(service.image, name).toMatch(/:[\w.]+$/);
      expect({ name, readOnly: service.read_only, drop: service.cap_drop }).toEqual({
        name,
        readOnly: true,
        drop: ['ALL'],
      });
    }
  });

  it('every variable that it needs is in the example', () => {
    const needed = new Set([...read('compose/compose.yml').matchAll(/\$\{(\w+)/g)].map((match) => match[1]!));
    const given = new Set([...read('compose/example.env').matchAll(/^(\w+)=/gm)].map((match) => match[1]!));
    expect([...needed].sort()).toEqual([...given].sort());
  });
});

describe('Kubernetes', () => {
  type Labels = Record<string, string>;
  interface Container {
    readonly image: string;
    readonly args: readonly string[];
    readonly ports: readonly { readonly name: string; readonly containerPort: number }[];
    readonly volumeMounts: readonly { readonly name: string }[];
    readonly securityContext: Record<string, unknown>;
    readonly [probe: `${string}Probe`]: {
      readonly httpGet: { readonly path: string; readonly port: string };
    };
  }
  interface Resource {
    readonly apiVersion: string;
    readonly kind: string;
    readonly metadata: { readonly name: string };
    readonly spec: unknown;
  }
  const { resources: files } = parse(read('kubernetes/kustomization.yaml')) as { resources: string[] };
  const all = files.flatMap((name) =>
    parseAllDocuments(read(`kubernetes/${name}`)).map((document) => {
      expect(document.errors).toEqual([]);
      return document.toJS() as Resource;
    }),
  );
  const of = (kind: string) => all.filter((resource) => resource.kind === kind);
  const workloads = [...of('Deployment'), ...of('StatefulSet')].map(({ metadata, spec }) => {
    const {
      selector,
      template,
      volumeClaimTemplates = [],
    } = spec as {
      selector: { matchLabels: Labels };
      template: {
        metadata: { labels: Labels };
        spec: { containers: Container[]; volumes: { name: string }[]; securityContext: object };
      };
      volumeClaimTemplates?: { metadata: { name: string } }[];
    };
    return {
      name: metadata.name,
      selector: selector.matchLabels,
      labels: template.metadata.labels,
      pod: template.spec,
      volumeClaimTemplates,
    };
  });
  const fits = (selector: Labels, labels: Labels) =>
    Object.entries(selector).every(([name, value]) => labels[name] === value);

  it('has the resources that a node needs, with their names and versions', () => {
    expect(
      all.map(({ apiVersion, kind, metadata }) => `${apiVersion} ${kind} ${metadata.name}`).sort(),
    ).toEqual([
      'apps/v1 Deployment minato-relay',
      'apps/v1 StatefulSet minato-worker',
      'autoscaling/v2 HorizontalPodAutoscaler minato-relay',
      'networking.k8s.io/v1 Ingress minato',
      'networking.k8s.io/v1 NetworkPolicy minato',
      'policy/v1 PodDisruptionBudget minato-relay',
      'v1 ConfigMap minato',
      'v1 Namespace minato',
      'v1 Service minato-relay',
      'v1 Service minato-worker',
      'v1 ServiceAccount minato',
    ]);
  });

  it('selectors find their pods, and pods have their volumes, ports and probes', () => {
    expect(workloads).toHaveLength(2);
    for (const { name, selector, labels, pod, volumeClaimTemplates } of workloads) {
      expect(fits(selector, labels), name).toBe(true);
      const volumes = [
        ...pod.volumes.map((one) => one.name),
        ...volumeClaimTemplates.map((one) => one.metadata.name),
      ];
      for (const container of pod.containers) {
        expect(container.volumeMounts.map((mount) => mount.name).sort()).toEqual(volumes.sort());
        for (const probe of ['startupProbe', 'livenessProbe', 'readinessProbe'] as const) {
          const { path, port } = container[probe]!.httpGet;
          expect(path).toBe(probe === 'readinessProbe' ? '/readyz' : '/healthz');
          expect(container.ports.map((one) => one.name)).toContain(port);
        }
        expect(container.args.slice(0, 2)).toEqual(['serve', '--roles']);
        expect(ROLES).toEqual(expect.arrayContaining(container.args[2]!.split(',')));
        expect(container.securityContext).toMatchObject({
          readOnlyRootFilesystem: true,
          allowPrivilegeEscalation: false,
        });
      }
      expect(pod.securityContext).toMatchObject({ runAsNonRoot: true, runAsUser: 10_001 });
    }
    const selectors = [...of('Service'), ...of('PodDisruptionBudget')].map(({ kind, spec }) =>
      kind === 'Service'
        ? (spec as { selector: Labels }).selector
        : (spec as { selector: { matchLabels: Labels } }).selector.matchLabels,
    );
    for (const selector of selectors)
      expect(workloads.filter(({ labels }) => fits(selector, labels))).toHaveLength(1);
  });

  it('the autoscaler finds its target, and its metric is one that a node exports', () => {
    const { scaleTargetRef, metrics } = of('HorizontalPodAutoscaler')[0]!.spec as {
      scaleTargetRef: { name: string };
      metrics: { type: string; pods?: { metric: { name: string } } }[];
    };
    expect(workloads.map(({ name }) => name)).toContain(scaleTargetRef.name);
    const names = metrics.flatMap(({ pods }) => pods?.metric.name ?? []);
    expect(names).toEqual(['minato_sockets']);
    for (const name of names) {
      expect(createMetrics().registry.getSingleMetric(name)).toBeDefined();
      expect(read('kubernetes/adapter.yaml')).toContain(`as: ${name}`);
    }
  });
});

describe('CloudFormation', () => {
  const text = read('aws/minato.yaml');
  const references: string[] = [];
  const noted = (tag: string) => ({
    tag,
    resolve: (value: string) => {
      if (tag === '!Sub')
        references.push(...[...value.matchAll(/\$\{([\w:.]+)\}/g)].map((match) => match[1]!));
      else references.push(value);
      return value;
    },
  });
  const list = { tag: '!Select', collection: 'seq' as const };
  const document = parseDocument(text, {
    customTags: [noted('!Ref'), noted('!GetAtt'), noted('!Sub'), list],
  });
  const template = document.toJS() as {
    Parameters: Record<string, { Type: string; Description?: string }>;
    Resources: Record<
      string,
      { Type: string; DependsOn?: string | string[]; Properties: Record<string, unknown> }
    >;
  };

  it('is valid, and uses nothing of YAML that CloudFormation does not know', () => {
    expect(document.errors).toEqual([]);
    expect(document.warnings).toEqual([]);
    const aliases: unknown[] = [];
    visit(document, { Alias: (_key, node) => void aliases.push(node) });
    expect(aliases).toEqual([]);
    expect(text).not.toMatch(/<<:/);
    expect(Buffer.byteLength(text)).toBeLessThan(51_200);
  });

  it('every reference has its target, and every parameter is used', () => {
    const names = new Set([...Object.keys(template.Parameters), ...Object.keys(template.Resources)]);
    const targets = references.map((name) => name.split('.')[0]!);
    expect(targets.length).toBeGreaterThan(60);
    expect(targets.filter((name) => !names.has(name) && !name.startsWith('AWS::'))).toEqual([]);
    for (const { DependsOn = [] } of Object.values(template.Resources))
      for (const name of [DependsOn].flat()) expect(names).toContain(name);
    expect(Object.keys(template.Parameters).filter((name) => !targets.includes(name))).toEqual([]);
    for (const [name, { Type }] of Object.entries(template.Resources))
      expect(Type, name).toMatch(/^AWS::\w+::\w+$/);
  });

  it('the table of the audit log has the keys and the name that the node expects', () => {
    const table = template.Resources.AuditLog!.Properties;
    expect(table.KeySchema).toEqual([
      { AttributeName: 'community', KeyType: 'HASH' },
      { AttributeName: 'sk', KeyType: 'RANGE' },
    ]);
    expect(table.TableName).toMatch(/^\$\{AWS::StackName\}_audit_logs$/);
    expect(text).toMatch(/Name: MINATO_DYNAMODB_PREFIX, Value: !Sub '\$\{AWS::StackName\}_' /);
  });
});

describe('systemd', () => {
  it('accepts the units, and finds little that the service is exposed to', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'minato-units-'));
    try {
      const names = readdirSync('deploy/systemd');
      for (const name of names) {
        // The programs of this machine: verify looks whether they are there.
        const text = read(`systemd/${name}`)
          .replaceAll('/usr/bin/node', process.execPath)
          .replaceAll('/opt/minato/bin/minato.js', resolve('bin/minato.js'));
        await writeFile(join(folder, name), text);
      }
      const program = await findSystemdAnalyze();
      const options = { env: { ...environmentOf(program), SYSTEMD_LOG_LEVEL: 'warning' }, timeout: 60_000 };
      const paths = names.map((name) => join(folder, name));
      const { stdout, stderr } = await run(program.path, ['verify', '--man=no', ...paths], options);
      const about = (stdout + stderr).split('\n').filter((line) => line.includes('minato'));
      expect(about).toEqual([]);
      const exposed = ['security', '--offline=yes', '--threshold=25', join(folder, 'minato.service')];
      await expect(run(program.path, exposed, options)).resolves.toBeDefined();
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});
