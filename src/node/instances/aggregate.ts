/** The metrics of all instances as one text. How values are combined is a property of each metric. */
import { AggregatorRegistry } from 'prom-client';

export interface InstanceCounts {
  readonly instances: number;
  /** Those that have answered. */
  readonly serving: number;
  readonly restarts: number;
}

export async function aggregate(
  reports: readonly (readonly object[])[],
  { instances, serving, restarts }: InstanceCounts,
): Promise<string> {
  const metrics = await AggregatorRegistry.aggregate(reports as object[][]).metrics();
  return [
    metrics.trimEnd(),
    '# HELP minato_instances Processes of this node: wanted, and serving',
    '# TYPE minato_instances gauge',
    `minato_instances{state="wanted"} ${instances}`,
    `minato_instances{state="serving"} ${serving}`,
    '# HELP minato_instance_restarts_total Instances that were started again after they had ended',
    '# TYPE minato_instance_restarts_total counter',
    `minato_instance_restarts_total ${restarts}`,
    '',
  ].join('\n');
}
