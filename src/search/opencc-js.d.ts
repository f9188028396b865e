/**
 * One dictionary of OpenCC, which the package has no types for: "traditional simplified", separated by "|".
 */
declare module 'opencc-js/dict/TSCharacters' {
  const characters: string;
  export default characters;
}
