/** Shows the progress of a command on stderr: a bar on a terminal, otherwise a line every few seconds. */
import { Presets, SingleBar } from 'cli-progress';

const PLAIN_LINE_MS = 5_000;

export interface Progress {
  update(done: number, about: string): void;
  stop(): void;
}

/** Without a total there is no bar: the length of a pipe is unknown. */
export function startProgress(total: number | undefined): Progress {
  return process.stderr.isTTY && total !== undefined && total > 0 ? showBar(total) : showLines(total);
}

function showBar(total: number): Progress {
  const options = {
    format: '{bar} {percentage}% | {about}',
    clearOnComplete: true,
    hideCursor: true,
    stream: process.stderr,
  };
  const bar = new SingleBar(options, Presets.shades_classic);
  bar.start(total, 0, { about: '' });
  return {
    update: (done, about) => bar.update(Math.min(done, total), { about }),
    stop: () => bar.stop(),
  };
}

function showLines(total: number | undefined): Progress {
  let last = Date.now();
  return {
    update: (done, about) => {
      if (Date.now() - last < PLAIN_LINE_MS) return;
      last = Date.now();
      const share = total ? `${Math.min(100, Math.floor((100 * done) / total))} %, ` : '';
      process.stderr.write(`${share}${about}\n`);
    },
    stop: () => undefined,
  };
}

/** The first signal stops the command after the current step, the second one at once. */
export interface Interruption {
  readonly signal: AbortSignal;
  /** 128 plus the number of the signal. */
  exitCode(): number | undefined;
  done(): void;
}

export function watchInterruption(): Interruption {
  const controller = new AbortController();
  let code: number | undefined;
  const onSignal = (signal: NodeJS.Signals): void => {
    if (code !== undefined) process.exit(code);
    code = signal === 'SIGINT' ? 130 : 143;
    controller.abort();
  };
  process.on('SIGINT', onSignal).on('SIGTERM', onSignal);
  return {
    signal: controller.signal,
    exitCode: () => code,
    done: () => {
      process.off('SIGINT', onSignal).off('SIGTERM', onSignal);
    },
  };
}

export { bytesText, count } from '../health/rules-text.js';
