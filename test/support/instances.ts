/** `minato serve --instances` as a real process with its children, whose log is read as it is written. */
import { readdirSync, readFileSync } from 'node:fs';
import { eventually, type RunningCli, startCli } from './cli.js';

interface Line {
  readonly instance: string;
  readonly msg: string;
  readonly pid?: number;
  readonly address?: string;
  readonly setup?: string;
}

export class Cluster {
  private text = '';

  private constructor(readonly cli: RunningCli) {
    cli.child.stdout!.on('data', (data: Buffer) => {
      this.text += String(data);
    });
  }

  static async start(instances: number, env: Record<string, string>): Promise<Cluster> {
    const args = ['serve', '--instances', `${instances}`];
    const cluster = new Cluster(startCli(args, { MINATO_PORT: '0', ...env }));
    await cluster.until('ready', 'primary');
    return cluster;
  }

  get url(): string {
    return this.lines.find(({ instance, msg }) => instance === 'primary' && msg === 'ready')!.address!;
  }
  get http(): string {
    return this.url.replace(/^ws/, 'http');
  }

  get lines(): Line[] {
    const whole = this.text.slice(0, this.text.lastIndexOf('\n') + 1);
    return whole.split('\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line) as Line]));
  }

  /** The newest process of an instance. */
  pidOf(name: string): number {
    return this.lines.findLast(({ instance, pid }) => instance === name && pid !== undefined)!.pid!;
  }

  /** Waits until it has logged this so many times. */
  async until(msg: string, instance: string, times = 1): Promise<void> {
    await eventually(`${instance}: ${msg}`, () => {
      if (this.cli.child.exitCode !== null) throw new Error(`it has ended:\n${this.text}`);
      const found = this.lines.filter((line) => line.msg === msg && line.instance === instance);
      return found.length >= times || undefined;
    });
  }

  async metric(name: string): Promise<number> {
    const text = await (await fetch(`${this.http}/metrics`)).text();
    const line = text.split('\n').find((each) => each.startsWith(`${name} `));
    if (line === undefined) throw new Error(`there is no ${name}`);
    return Number(line.slice(name.length + 1));
  }

  async stop(): Promise<number | null> {
    this.cli.child.kill('SIGTERM');
    return (await this.cli.ended).code;
  }
}

/** Whether a process of this machine runs. */
export function isRunning(pid: number): boolean {
  try {
    const line = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return !/^\d+ \(.*\) Z/.test(line);
  } catch {
    return false;
  }
}

export function childrenOf(pid: number): number[] {
  return readdirSync('/proc')
    .map(Number)
    .filter((each) => each > 0 && parentOf(each) === pid);
}

function parentOf(pid: number): number | undefined {
  try {
    const line = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return Number(line.slice(line.lastIndexOf(')') + 2).split(' ')[1]);
  } catch {
    return undefined;
  }
}
