/**
 * Coverage as the guide, by V8 through `node:inspector`: which blocks of `src` ran since the last question.
 * An input that runs a block for the first time is kept and mutated further.
 */
import { type Profiler, Session } from 'node:inspector/promises';

const OURS = /\/src\/(?!demo\/)/;

export class Guide {
  private readonly session = new Session();
  private readonly known = new Set<string>();

  static async start(): Promise<Guide> {
    const guide = new Guide();
    guide.session.connect();
    await guide.session.post('Profiler.enable');
    await guide.session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
    await guide.takeNew();
    return guide;
  }

  get size(): number {
    return this.known.size;
  }

  /** How many blocks ran for the first time since the last call. */
  async takeNew(): Promise<number> {
    const before = this.known.size;
    for (const block of await this.ran()) this.known.add(block);
    return this.known.size - before;
  }

  /** One of the inputs that have just run a block for the first time: the half that does is run again. */
  async findNew(
    inputs: readonly string[],
    run: (input: string) => Promise<void>,
  ): Promise<string | undefined> {
    if ((await this.freshBlocks()).length === 0) return undefined;
    let part = inputs;
    while (part.length > 1) {
      const half = part.slice(0, Math.ceil(part.length / 2));
      for (const input of half) await run(input);
      part = (await this.freshBlocks()).length > 0 ? half : part.slice(half.length);
    }
    for (const input of part) await run(input);
    for (const block of await this.freshBlocks()) this.known.add(block);
    return part[0];
  }

  private async freshBlocks(): Promise<string[]> {
    return (await this.ran()).filter((block) => !this.known.has(block));
  }

  async stop(): Promise<void> {
    await this.session.post('Profiler.stopPreciseCoverage');
    this.session.disconnect();
  }

  private async ran(): Promise<string[]> {
    const { result } = (await this.session.post(
      'Profiler.takePreciseCoverage',
    )) as Profiler.TakePreciseCoverageReturnType;
    return result
      .filter(({ url }) => OURS.test(url))
      .flatMap(({ scriptId, functions }) =>
        functions.flatMap(({ ranges }) =>
          ranges
            .filter(({ count }) => count > 0)
            .map(({ startOffset, endOffset }) => `${scriptId}:${startOffset}:${endOffset}`),
        ),
      );
  }
}
