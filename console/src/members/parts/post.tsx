/**
 * One post. What others write is text: nothing in it is loaded or followed. A picture is loaded only after a
 * click, and the button names the host that it comes from.
 */
import { ActionIcon, Button, Group, Menu, Paper, Stack, Text } from '@mantine/core';
import { IconCornerDownRight, IconDots, IconFlag, IconPhoto, IconTrash } from '@tabler/icons-react';
import { useMutation } from '@tanstack/react-query';
import type { VerifiedEvent } from 'nostr-tools/pure';
import { useState } from 'react';
import { Confirm } from '../../shared/components/confirm.js';
import { EventText } from '../../shared/components/event-text.js';
import { When } from '../../shared/components/when.js';
import { useT } from '../../shared/i18n.js';
import { notifyDone } from '../../shared/providers.js';
import { mayLoadPictures, threadPath } from '../places.js';
import { relay } from '../relay.js';
import { sign, useMember } from '../session.js';
import { Composer } from './composer.js';
import { Go } from './link.js';
import { Author, Face } from './names.js';
import { ReportDialog } from './report.js';

interface PostProps {
  readonly post: VerifiedEvent;
  readonly topic: string | undefined;
  /** The post that this one answers, if it is known. */
  readonly parent?: VerifiedEvent | undefined;
  /** The one that the address of the page names. */
  readonly isNamed?: boolean;
  readonly onDeleted?: (id: string) => void;
}

export function Post({ post, topic, parent, isNamed = false, onDeleted }: PostProps) {
  const t = useT();
  const member = useMember();
  const [isReplying, setReplying] = useState(false);
  const title = post.tags.find(([name]) => name === 'title')?.[1];
  return (
    <Paper
      component="article"
      withBorder
      p="md"
      className={isNamed ? 'post named' : 'post'}
      data-post={post.id}
    >
      <Group gap="sm" align="flex-start" wrap="nowrap">
        <Face pubkey={post.pubkey} />
        <Stack gap={6} flex={1} miw={0}>
          <Group justify="space-between" wrap="nowrap" gap="xs">
            <Group gap={8} wrap="nowrap" miw={0}>
              <Author pubkey={post.pubkey} />
              <Text size="xs" c="dimmed" style={{ whiteSpace: 'nowrap' }} title={t('home:openThread')}>
                <Go to={threadPath(topic, post.id)} className="time-link">
                  <When at={post.created_at * 1_000} />
                </Go>
              </Text>
            </Group>
            <Actions post={post} onDeleted={onDeleted} />
          </Group>
          {parent !== undefined && <Quoted post={parent} />}
          {title !== undefined && <Text fw={650}>{title}</Text>}
          <EventText text={post.content} short={700} />
          <Pictures text={post.content} />
          {member !== undefined && !isReplying && (
            <Group>
              <Button
                size="compact-xs"
                variant="subtle"
                leftSection={<IconCornerDownRight size={14} />}
                onClick={() => setReplying(true)}
              >
                {t('home:reply')}
              </Button>
            </Group>
          )}
          {isReplying && <Composer topic={topic} replyTo={post} onDone={() => setReplying(false)} />}
        </Stack>
      </Group>
    </Paper>
  );
}

const QUOTE_LENGTH = 120;

function Quoted({ post }: { readonly post: VerifiedEvent }) {
  const words = post.content.replace(/\s+/g, ' ').slice(0, QUOTE_LENGTH);
  return (
    <div className="quote">
      <Author pubkey={post.pubkey} />
      <Text size="xs" c="dimmed" className="text">
        {words.length < QUOTE_LENGTH ? words : `${words}…`}
      </Text>
    </div>
  );
}

function Actions({ post, onDeleted }: Pick<PostProps, 'post' | 'onDeleted'>) {
  const t = useT();
  const member = useMember();
  const [asks, setAsks] = useState<'report' | 'delete'>();
  const deleting = useMutation({
    mutationFn: async () => {
      const tags = [
        ['e', post.id],
        ['k', String(post.kind)],
      ];
      await relay.publish(await sign({ kind: 5, content: '', tags }));
    },
    onSuccess: () => {
      setAsks(undefined);
      onDeleted?.(post.id);
      notifyDone(t('home:deleted'));
    },
  });
  if (member === undefined) return null;
  const isOwn = member.pubkey === post.pubkey;
  const close = () => setAsks(undefined);
  return (
    <>
      <Menu position="bottom-end" withArrow>
        <Menu.Target>
          <ActionIcon variant="subtle" color="gray" size="sm" aria-label={t('home:actions')}>
            <IconDots size={16} />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          {isOwn ? (
            <Menu.Item leftSection={<IconTrash size={15} />} onClick={() => setAsks('delete')}>
              {t('home:delete')}
            </Menu.Item>
          ) : (
            <Menu.Item leftSection={<IconFlag size={15} />} onClick={() => setAsks('report')}>
              {t('home:report')}
            </Menu.Item>
          )}
        </Menu.Dropdown>
      </Menu>
      <Confirm
        opened={asks === 'delete'}
        title={t('home:deleteTitle')}
        action={t('home:delete')}
        isBusy={deleting.isPending}
        onConfirm={() => deleting.mutate()}
        onClose={close}
      >
        <Text size="sm">{t('home:deleteAbout')}</Text>
      </Confirm>
      <ReportDialog post={post} opened={asks === 'report'} onClose={close} />
    </>
  );
}

const PICTURE = /https:\/\/[^\s<>"']+\.(?:png|jpe?g|gif|webp|avif)(?:\?[^\s<>"']*)?/gi;
const PICTURES_MAX = 4;

function Pictures({ text }: { readonly text: string }) {
  const urls = [...new Set(text.match(PICTURE) ?? [])].filter((url) => URL.canParse(url));
  return (
    <>
      {urls.slice(0, PICTURES_MAX).map((url) => (
        <Picture key={url} url={url} />
      ))}
    </>
  );
}

function Picture({ url }: { readonly url: string }) {
  const t = useT();
  const [isShown, setShown] = useState(false);
  const label = t('home:showPicture', { host: new URL(url).host });
  const look = { size: 'compact-sm', variant: 'default', leftSection: <IconPhoto size={15} /> } as const;
  if (isShown)
    return <img className="picture" src={url} alt={t('home:pictureOfPost')} referrerPolicy="no-referrer" />;
  if (mayLoadPictures)
    return (
      <Group>
        <Button {...look} onClick={() => setShown(true)}>
          {label}
        </Button>
      </Group>
    );
  return (
    <Group>
      <Button {...look} component="a" href={url} target="_blank" rel="noreferrer noopener">
        {label}
      </Button>
    </Group>
  );
}
