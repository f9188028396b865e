/** The library that draws charts, with its styles. */
import 'uplot/dist/uPlot.min.css';

export { default as Plot } from 'uplot';
