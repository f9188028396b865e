import { Command } from 'commander';
import type { Config } from '../node/config.js';
import { checkVersion } from '../postgres/database.js';
import { MIGRATION_MS_MAX, migrate, schemaState } from '../postgres/migrate.js';
import { withDatabase } from './context.js';

export function migrateCommand(): Command {
  return new Command('migrate')
    .description('migrate the schema of the database to this version; serve also does it')
    .option('--dry-run', 'only show what would be applied')
    .addHelpText(
      'after',
      `
With MINATO_EVENT_STORE=dynamodb it also creates the tables in DynamoDB that are missing. For that it
needs the right to create tables, which a running node does not need (docs/dynamodb.md).`,
    )
    .action((options: { dryRun?: boolean }) =>
      withDatabase(async ({ config, database }) => {
        const client = await database.connect({ statementTimeoutMs: MIGRATION_MS_MAX });
        try {
          await checkVersion(client);
          const names = options.dryRun ? (await schemaState(client)).pending : await migrate(client);
          const what = options.dryRun ? 'would apply' : 'applied';
          process.stdout.write(names.length === 0 ? 'the schema is up to date\n' : '');
          for (const name of names) process.stdout.write(`${what} ${name}\n`);
        } finally {
          await client.end();
        }
        if (config.eventStore === 'dynamodb') await createTables(config, options.dryRun === true);
      }),
    );
}

async function createTables({ dynamodb }: Config, isDryRun: boolean): Promise<void> {
  // Loaded here, because most nodes have no tables there.
  const { Dynamodb } = await import('../events/dynamodb/client.js');
  const { ensureTables, missingTables } = await import('../events/dynamodb/tables.js');
  const db = new Dynamodb(dynamodb!);
  try {
    const names = isDryRun ? await missingTables(db) : await ensureTables(db);
    const what = isDryRun ? 'would create' : 'created';
    process.stdout.write(names.length === 0 ? `the tables in DynamoDB at ${db.host} exist\n` : '');
    for (const name of names) process.stdout.write(`${what} the table ${name} in DynamoDB at ${db.host}\n`);
  } finally {
    await db.close();
  }
}
