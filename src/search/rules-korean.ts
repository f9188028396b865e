/**
 * Korean words are written together with their particles (서울에서, 서울은). A post is found by the word without
 * them, and by pairs of syllables, because compounds may be written without blanks. Pure.
 */

const FIRST = 0xac00;
const ENDS = 28;
const IS_SYLLABLE = /^[\uac00-\ud7a3]+$/;

/**
 * Whether the last syllable ends with a consonant: some particles follow only those, some only the others.
 */
function endsWithConsonant(word: string): boolean {
  return (word.charCodeAt(word.length - 1) - FIRST) % ENDS !== 0;
}

type After = 'consonant' | 'vowel' | 'any';
interface Particle {
  readonly text: string;
  readonly after: After;
  /** May also be the end of a noun (회의, 지도): after one syllable it counts as that. */
  readonly isDoubtful: boolean;
}
const particles = (texts: string, after: After, isDoubtful = false): Particle[] =>
  texts.split(' ').map((text) => ({ text, after, isDoubtful }));

/** The longest first. */
const PARTICLES: readonly Particle[] = [
  ...particles(
    '에서부터 에서는 에서도 에서의 에게서 에게는 에게도 한테서 까지는 까지도 부터는 에서 에게 에는 에도 에만 에 한테 께서 까지 부터 처럼 보다 마다 조차 마저 밖에 하고 들',
    'any',
  ),
  ...particles(
    '으로부터 으로는 으로도 으로서 으로써 으로 이라고 이라는 이랑 이나 이며 입니다 이다 은 을 과',
    'consonant',
  ),
  ...particles('라고 라는 랑 는 를 와 가', 'vowel'),
  ...particles('이', 'consonant', true),
  ...particles('의 도 만', 'any', true),
  ...particles('로 고 나', 'vowel', true),
].sort((one, other) => other.text.length - one.text.length);

function particleOf(word: string): Particle | undefined {
  return PARTICLES.find(({ text, after, isDoubtful }) => {
    if (word.length <= text.length || !word.endsWith(text)) return false;
    const stem = word.slice(0, -text.length);
    if (isDoubtful && stem.length === 1 && after !== 'consonant') return false;
    return after === 'any' || endsWithConsonant(stem) === (after === 'consonant');
  });
}

/** The word without its particle, then without the one before it: 아이들이, 아이들, 아이. */
export function koreanStems(word: string): string[] {
  if (!IS_SYLLABLE.test(word)) return [];
  const stems: string[] = [];
  for (let rest = word; stems.length < 2; ) {
    const particle = particleOf(rest);
    if (particle === undefined) break;
    rest = rest.slice(0, -particle.text.length);
    stems.push(rest);
  }
  return stems;
}

/** The text that pairs are made of: a pair that includes a particle would be another word (영화가, 화가). */
export function pairedPart(word: string): string {
  const particle = IS_SYLLABLE.test(word) ? particleOf(word) : undefined;
  return particle === undefined || particle.isDoubtful ? word : word.slice(0, -particle.text.length);
}

/** Verbs that are made of a noun: 사랑하다. */
const DOES = /(?<=..)(?:하다|합니다|했다|했어요|해요|하는|하기)$/;

/** The word of a query without an unambiguous particle, if at least two syllables are left. */
export function koreanMeaning(word: string): string {
  const noun = word.replace(DOES, '');
  if (noun !== word) return noun;
  const part = pairedPart(word);
  return part.length >= 2 ? part : word;
}

const COMPOUND_MAX = 10;

/** A compound may also be written as two words: 서울여행, 서울 여행. */
export function koreanParts(word: string): [string, string][] {
  if (word.length < 3 || word.length > COMPOUND_MAX || !IS_SYLLABLE.test(word)) return [];
  return Array.from({ length: word.length - 2 }, (_, at) => [word.slice(0, at + 2), word.slice(at + 2)]);
}

/** After a word of another script: AI가. */
export function isParticle(text: string): boolean {
  return PARTICLES.some((particle) => particle.text === text);
}
