/** Colours and shapes of both pages. */
import { createTheme, type MantineColorsTuple } from '@mantine/core';

const harbour: MantineColorsTuple = [
  '#e6f7fa',
  '#d3ebef',
  '#a6d7df',
  '#75c1ce',
  '#4fafc0',
  '#2f98ab',
  '#1a8598',
  '#0b7285',
  '#005f70',
  '#004b59',
];

export const theme = createTheme({
  colors: { harbour },
  primaryColor: 'harbour',
  primaryShade: 7,
  autoContrast: true,
  defaultRadius: 'md',
  cursorType: 'pointer',
  respectReducedMotion: true,
  fontFamily:
    'system-ui, -apple-system, "Segoe UI", Roboto, "Hiragino Sans", "Noto Sans JP", "Yu Gothic UI", sans-serif',
  fontFamilyMonospace: 'ui-monospace, SFMono-Regular, Menlo, Consolas, monospace',
  headings: { fontWeight: '650' },
});
