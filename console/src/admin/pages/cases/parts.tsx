/** Small parts that the pages of cases share. */
import { Badge, Group, Text, Tooltip } from '@mantine/core';
import { number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { useTopicNames } from '../../topic-names.js';
import type { CaseStatus, LabelName, ListedCase } from './types.js';
import { STATUS_COLORS } from './types.js';

export function StatusBadge({ status }: { readonly status: CaseStatus }) {
  const t = useT();
  return (
    <Badge variant="dot" color={STATUS_COLORS[status]} tt="none">
      {t(`cases:status.${status}`)}
    </Badge>
  );
}

export function LabelBadge({ label }: { readonly label: LabelName }) {
  const t = useT();
  return (
    <Badge variant="default" tt="none">
      {t(`cases:labels.${label}`)}
    </Badge>
  );
}

export function Topics({ topics }: { readonly topics: readonly string[] }) {
  const names = useTopicNames();
  if (topics.length === 0) return null;
  return (
    <Group gap={4}>
      {topics.slice(0, 3).map((topic) => (
        <Badge key={topic} variant="default" tt="none" fw={500} miw={0} maw={200} title={topic}>
          {names.get(topic) ?? topic}
        </Badge>
      ))}
      {topics.length > 3 && (
        <Tooltip
          label={topics
            .slice(3)
            .map((topic) => names.get(topic) ?? topic)
            .join(', ')}
        >
          <Badge variant="default">+{number(topics.length - 3)}</Badge>
        </Tooltip>
      )}
    </Group>
  );
}

type Reported = Pick<ListedCase, 'reports' | 'reports_with_standing' | 'report_weight'>;

/** "500 reports, 0 with standing": many reports of nobody are worth nothing. */
export function Reports({ reports, reports_with_standing: standing }: Reported) {
  const t = useT();
  if (reports === 0) return <Text size="sm">–</Text>;
  return (
    <Text size="sm" c={standing === 0 ? 'dimmed' : undefined}>
      {reports === 1
        ? t('cases:oneReport', { standing: number(standing) })
        : t('cases:reports', { n: number(reports), standing: number(standing) })}
    </Text>
  );
}

/** The reason of a case: its reports give a known word, everything else is free text. */
export function Reason({ reason }: { readonly reason: string }) {
  const t = useT();
  const reported = /^reported: (\w+)$/.exec(reason)?.[1];
  if (reported === undefined) return <>{reason}</>;
  return <>{t('cases:reportedAs', { reason: t(`cases:reasons.${reported}`) })}</>;
}
