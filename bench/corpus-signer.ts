/** A process that signs parts of a corpus: it receives a range of indexes and returns their JSON lines. */
import { type CorpusSpec, corpusMaker } from './generate.js';
import { openSigner } from './sign.js';

export interface Range {
  readonly from: number;
  readonly to: number;
}

const spec = JSON.parse(process.argv[2]!) as CorpusSpec;
const make = corpusMaker(spec, await openSigner());

process.on('message', ({ from, to }: Range) => {
  let lines = '';
  for (let index = from; index < to; index++) lines += `${JSON.stringify(make(index))}\n`;
  process.send!(lines);
});
process.on('disconnect', () => process.exit());
