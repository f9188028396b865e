/**
 * A flame graph of CPU profiles as one self-contained SVG. `--profile DIR` makes the node write its profiles.
 * To draw other profiles:
 *
 *   node --import tsx bench/flame.ts OUT.svg IN.cpuprofile [MORE.cpuprofile …]
 *
 * Width is CPU time of the main thread. A caller is below the functions it calls. Equal stacks of several
 * profiles are merged.
 */
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { escapeXml, openSvg, STYLE, text } from './chart.js';

const WIDTH = 1_200;
const TOP = 66;
const LEVEL = 17;
/** Narrower frames are omitted: they are invisible, and there are thousands. */
const WIDTH_MIN = 0.6;
const LABEL_WIDTH_MIN = 36;
const CHAR_WIDTH = 6.2;

interface ProfileNode {
  readonly id: number;
  readonly callFrame: { readonly functionName: string; readonly url: string; readonly lineNumber: number };
  readonly children?: readonly number[];
}

export interface CpuProfile {
  readonly nodes: readonly ProfileNode[];
  readonly samples: readonly number[];
  readonly timeDeltas: readonly number[];
}

export interface Frame {
  readonly name: string;
  readonly family: Family;
  /** Including everything that it calls. */
  micros: number;
  readonly calls: Map<string, Frame>;
}

type Family = 'own' | 'packages' | 'runtime' | 'collector';
const FAMILIES: readonly (readonly [Family, string])[] = [
  ['own', 'this project'],
  ['packages', 'packages'],
  ['runtime', 'Node and V8'],
  ['collector', 'garbage collector'],
];

/** Time in which the thread waits is not CPU time. */
const WAITING = new Set(['(idle)']);

/** All stacks of these profiles under one root. */
export function frameTree(profiles: readonly CpuProfile[]): Frame {
  const root: Frame = { name: 'all', family: 'runtime', micros: 0, calls: new Map() };
  for (const profile of profiles) addProfile(root, profile);
  return root;
}

function addProfile(root: Frame, { nodes, samples, timeDeltas }: CpuProfile): void {
  const parents = new Map<number, number>();
  const byId = new Map(nodes.map((node) => [node.id, node]));
  for (const { id, children = [] } of nodes) for (const child of children) parents.set(child, id);
  const selfMicros = new Map<number, number>();
  samples.forEach((id, place) => {
    selfMicros.set(id, (selfMicros.get(id) ?? 0) + Math.max(0, timeDeltas[place] ?? 0));
  });
  for (const [id, micros] of selfMicros) {
    if (WAITING.has(byId.get(id)!.callFrame.functionName)) continue;
    const stack: ProfileNode[] = [];
    for (let at: number | undefined = id; at !== undefined; at = parents.get(at)) stack.push(byId.get(at)!);
    // The last one is the profile's own root.
    addStack(root, stack.slice(0, -1).reverse(), micros);
  }
}

function addStack(root: Frame, stack: readonly ProfileNode[], micros: number): void {
  let frame = root;
  frame.micros += micros;
  for (const { callFrame } of stack) {
    const name = nameOf(callFrame);
    let next = frame.calls.get(name);
    if (next === undefined) {
      next = { name, family: familyOf(callFrame), micros: 0, calls: new Map() };
      frame.calls.set(name, next);
    }
    next.micros += micros;
    frame = next;
  }
}

function nameOf({ functionName, url, lineNumber }: ProfileNode['callFrame']): string {
  const name = functionName === '' ? '(anonymous)' : functionName;
  if (url === '') return name;
  // Only the part of the path inside the package or the project.
  const place = url.replace(/^.*\/node_modules\//, '').replace(/^.*\/(dist|src)\//, '');
  return `${name} ${place.replace(/^file:\/\//, '')}:${lineNumber + 1}`;
}

function familyOf({ functionName, url }: ProfileNode['callFrame']): Family {
  if (functionName === '(garbage collector)') return 'collector';
  if (url === '' || url.startsWith('node:')) return 'runtime';
  return url.includes('/node_modules/') ? 'packages' : 'own';
}

export function renderFlame(root: Frame, title: string): string {
  const boxes: string[] = [];
  let deepest = 0;
  const perMicro = WIDTH / Math.max(1, root.micros);
  const walk = (frame: Frame, x: number, depth: number): void => {
    const width = frame.micros * perMicro;
    if (width < WIDTH_MIN) return;
    deepest = Math.max(deepest, depth);
    boxes.push(boxOf(frame, x, depth, width, frame.micros / root.micros));
    let left = x;
    for (const call of [...frame.calls.values()].sort((a, b) => b.micros - a.micros)) {
      walk(call, left, depth + 1);
      left += call.micros * perMicro;
    }
  };
  walk(root, 0, 0);
  const height = TOP + (deepest + 1) * LEVEL + 4;
  return [
    openSvg(WIDTH, height, title),
    `<style>${STYLE}${FLAME_STYLE}</style>`,
    text(0, 20, title, 'title'),
    text(0, 40, `${(root.micros / 1e6).toFixed(1)} s of CPU on the main thread`, 'faint'),
    ...FAMILIES.map(([family, name], place) => legendOf(family, name, place)),
    `<g transform="translate(0 ${height - 4})">`,
    ...boxes,
    '</g>',
    '</svg>',
    '',
  ].join('\n');
}

function legendOf(family: Family, name: string, place: number): string {
  const x = WIDTH - 560 + place * 140;
  const sample = `<rect class="${family}" x="${x}" y="30" width="12" height="12" rx="2"/>`;
  return `${sample}${text(x + 18, 41, name, 'faint')}`;
}

function boxOf(frame: Frame, x: number, depth: number, width: number, share: number): string {
  const y = -(depth + 1) * LEVEL;
  const label = width < LABEL_WIDTH_MIN ? '' : frame.name.slice(0, Math.floor((width - 6) / CHAR_WIDTH));
  return (
    `<g><title>${escapeXml(`${frame.name}: ${(share * 100).toFixed(1)} %`)}</title>` +
    `<rect class="${frame.family}" x="${x.toFixed(1)}" y="${y}" ` +
    `width="${Math.max(0.3, width - 0.4).toFixed(1)}" height="${LEVEL - 1}"/>` +
    `${label === '' ? '' : text(x + 3, y + 12, label, 'label')}</g>`
  );
}

const FLAME_STYLE = `
  .label { font-size: 11px; fill: #1f2328; }
  .own { fill: #7fb0f5; }
  .packages { fill: #f2c879; }
  .runtime { fill: #c9d1d9; }
  .collector { fill: #e8a0a0; }
  @media (prefers-color-scheme: dark) { .label { fill: #1f2328; } }`;

/** Node names a profile CPU.date.time.pid.thread.number; thread 0 is the main one. */
const MAIN_THREAD = /^CPU\.\d+\.\d+\.\d+\.0\.\d+\.cpuprofile$/;

/**
 * Draws the main threads of a folder's profiles into FOLDER.svg. Returns the file, or undefined when there is
 * no profile.
 */
export function drawProfiles(folder: string, title: string): string | undefined {
  const files = existsSync(folder) ? readdirSync(folder).filter((name) => MAIN_THREAD.test(name)) : [];
  if (files.length === 0) return undefined;
  const out = `${folder.replace(/\/+$/, '')}.svg`;
  writeFileSync(out, renderFlame(frameTree(files.map((name) => readProfile(join(folder, name)))), title));
  return out;
}

function readProfile(file: string): CpuProfile {
  return JSON.parse(readFileSync(file, 'utf8')) as CpuProfile;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [out, ...files] = process.argv.slice(2);
  if (out === undefined || files.length === 0) {
    process.stderr.write(
      'usage: node --import tsx bench/flame.ts OUT.svg IN.cpuprofile [MORE.cpuprofile …]\n',
    );
    process.exitCode = 1;
  } else {
    writeFileSync(out, renderFlame(frameTree(files.map(readProfile)), 'Minato'));
  }
}
