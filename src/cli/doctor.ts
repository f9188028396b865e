/**
 * `minato doctor` checks everything that a node needs and says what to do about each problem. It changes
 * nothing: no migration, no new database. If no node runs, it starts the embedded database for the check and
 * stops it afterwards.
 */
import { Command } from 'commander';
import { type Finding, fail, type Level, messageOf, ok } from '../health/finding.js';
import { checkMachine } from '../health/machine.js';
import { type Config, ConfigError, readConfig } from '../node/config.js';
import { SOFTWARE_VERSION } from '../node/version.js';
import { dataLockHolder } from '../postgres/data-lock.js';
import { checkDataFolder, checkEnvironment } from './doctor-configuration.js';
import { checkDatabase } from './doctor-database.js';
import { checkProgram, checkVerifier } from './doctor-machine.js';
import { checkDescriptors, checkPort } from './doctor-port.js';
import { checkDynamodb, checkEventTables, checkRedis } from './doctor-stores.js';
import { checkUser } from './doctor-user.js';

export function doctorCommand(): Command {
  return new Command('doctor')
    .description('check configuration, database, verifier and port, and say what to do about problems')
    .option('--json', 'print one JSON object')
    .addHelpText(
      'after',
      `
Nothing is changed. Exit code: 0 when the node can run (warnings included), 1 when a check has FAILed.`,
    )
    .action(async (options: { json?: boolean }) => {
      const findings: Finding[] = [];
      for await (const finding of examine(process.env)) {
        findings.push(finding);
        if (!options.json) process.stdout.write(show(finding));
      }
      const healthy = findings.every(({ level }) => level !== 'fail');
      if (options.json) {
        process.stdout.write(
          `${JSON.stringify({ version: SOFTWARE_VERSION, healthy, findings }, null, 2)}\n`,
        );
      } else process.stdout.write(verdict(findings));
      if (!healthy) process.exitCode = 1;
    });
}

const WORDS: Record<Level, string> = { ok: 'ok  ', info: 'info', warn: 'warn', fail: 'FAIL' };

function show({ level, text, advice }: Finding): string {
  const indented = (lines: string) => lines.replaceAll('\n', '\n     ');
  return `${WORDS[level]} ${indented(text)}\n${advice === undefined ? '' : `     → ${indented(advice)}\n`}`;
}

function verdict(findings: readonly Finding[]): string {
  const times = (level: Level) => findings.filter((finding) => finding.level === level).length;
  const warnings = `${times('warn')} ${times('warn') === 1 ? 'warning' : 'warnings'}`;
  if (times('fail') > 0) return `\n${times('fail')} failed, ${warnings}\n`;
  return times('warn') > 0 ? `\nThe node can run; ${warnings}\n` : '\nNo problems found\n';
}

/**
 * The checks that do not need the configuration come first, so that they also run when the configuration is
 * wrong.
 */
async function* examine(env: NodeJS.ProcessEnv): AsyncGenerator<Finding> {
  yield* checkProgram();
  yield* checkMachine();
  yield* guard('the verifier', checkVerifier());
  let config: Config;
  try {
    config = readConfig(env);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    yield fail(error.message, 'Correct or unset them; "minato serve --help" lists them all.');
    return;
  }
  yield* checkEnvironment(config);
  const holder = config.databaseUrl === undefined ? await dataLockHolder(config.dataDir) : undefined;
  if (config.databaseUrl === undefined)
    yield* guard('the data folder', checkDataFolder(config.dataDir, holder));
  else yield ok('DATABASE_URL is set: the data folder is not used');
  yield* guard('the user', checkUser(config, holder));
  yield* guard('the database', checkDatabase(config, holder));
  if (config.redisUrl !== undefined) yield* checkRedis(config.redisUrl);
  if (config.dynamodb !== undefined) yield* checkDynamodb(config.dynamodb);
  if (config.dynamodb !== undefined && config.eventStore === 'dynamodb')
    yield* checkEventTables(config.dynamodb);
  yield* checkDescriptors(holder);
  yield* guard('the port', checkPort(config, holder));
}

/** A check that throws becomes a finding, and the others still run. */
async function* guard(what: string, findings: AsyncGenerator<Finding>): AsyncGenerator<Finding> {
  try {
    yield* findings;
  } catch (error) {
    yield fail(
      `${what} could not be checked: ${messageOf(error)}`,
      'Fix this first, then run minato doctor again.',
    );
  }
}
