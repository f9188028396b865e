#!/usr/bin/env node
import { existsSync } from 'node:fs';

const main = new URL('../dist/cli/main.js', import.meta.url);
if (existsSync(main)) await import(main.href);
else {
  process.stderr.write(
    'minato: not built yet. Run "npm run build" first, or "npm start", which does both.\n',
  );
  process.exit(1);
}
