/** Deletes a rule, after it has said in numbers what that releases. */
import { Checkbox, List, Loader, Stack, Text } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { api, dataOf, useAction } from '../../../shared/api.js';
import { Confirm } from '../../../shared/components/confirm.js';
import { Failure } from '../../../shared/components/states.js';
import { useT } from '../../../shared/i18n.js';
import { notifyDone } from '../../../shared/providers.js';
import { TOUCHED, undoBatch, useUndo } from '../cases/actions.js';
import { RULES_KEY } from '../cases/rules-by-id.js';
import { upTo } from '../cases/waiting.js';
import type { Rule } from './types.js';

interface DeleteRuleProps {
  readonly rule: Rule;
  readonly opened: boolean;
  readonly onClose: () => void;
  readonly onDeleted?: () => void;
}

export function DeleteRule({ rule, opened, onClose, onDeleted }: DeleteRuleProps) {
  const t = useT();
  const offerUndo = useUndo();
  const [keep, setKeep] = useState(false);
  const [hidden, setHidden] = useState(false);
  const path = { rule_id: rule.rule_id };
  const releases = useQuery({
    queryKey: ['releases', rule.rule_id],
    queryFn: () => dataOf(api.GET('/v1/admin/moderation/rules/{rule_id}/releases', { params: { path } })),
    enabled: opened,
    staleTime: 0,
  });
  const deleting = useAction(
    () =>
      dataOf(
        api.DELETE('/v1/admin/moderation/rules/{rule_id}', {
          params: { path, query: { keep: String(keep), hidden: String(hidden) } },
        }),
      ),
    {
      changes: [RULES_KEY, ...TOUCHED],
      onDone: ({ name, released }) => {
        onClose();
        if (released === null) notifyDone(t('rules:deleted', { name }));
        else offerUndo(t('rules:deletedReleased', { name }), () => undoBatch(released));
        onDeleted?.();
      },
    },
  );
  const found = releases.data;
  return (
    <Confirm
      opened={opened}
      title={t('rules:deleteOne', { name: rule.name })}
      name={rule.name}
      action={t('rules:delete')}
      isBusy={deleting.isPending}
      isDisabled={found === undefined}
      onClose={onClose}
      onConfirm={() => deleting.mutate(undefined)}
    >
      {releases.isPending && <Loader type="dots" />}
      {releases.isError && <Failure error={releases.error} />}
      {found && (
        <Stack gap="sm">
          <Text size="sm">{t('rules:deleteAbout')}</Text>
          <List size="sm">
            <List.Item>
              {t(keep ? 'rules:heldStays' : 'rules:heldReleased', { n: upTo(found.held) })}
            </List.Item>
            <List.Item>
              {t(hidden && !keep ? 'rules:hiddenReleased' : 'rules:hiddenStays', { n: upTo(found.hidden) })}
            </List.Item>
            <List.Item>
              {t(keep ? 'rules:labelsStay' : 'rules:labelsWithdrawn', { n: upTo(found.labels) })}
            </List.Item>
          </List>
          <Checkbox
            label={t('rules:keep')}
            checked={keep}
            onChange={(event) => setKeep(event.currentTarget.checked)}
          />
          <Checkbox
            label={t('rules:alsoHidden')}
            disabled={keep}
            checked={hidden && !keep}
            onChange={(event) => setHidden(event.currentTarget.checked)}
          />
        </Stack>
      )}
    </Confirm>
  );
}
