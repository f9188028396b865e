#!/usr/bin/env node
import { existsSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';

// By default V8 lets the heap of a busy process grow to four times what is alive before it collects the rest.
// Twice is enough: docs/decisions/0019-fewer-bytes.md.
setFlagsFromString('--heap-growing-percent=100');

const main = new URL('../dist/cli/main.js', import.meta.url);
if (existsSync(main)) await import(main.href);
else {
  process.stderr.write(
    'minato: not built yet. Run "npm run build" first, or "npm start", which does both.\n',
  );
  process.exitCode = 1;
}
