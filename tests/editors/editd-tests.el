;;; editd-tests.el --- editd.el against a real daemon  -*- lexical-binding: t; -*-

;;; Commentary:

;; Run by test_emacs.py, in one batch Emacs: each test is a claim.  The workspace is
;; EDITD_TEST_ROOT, and EDITD_TEST_OWN_ROOT one whose reviewers have a socket of their own.
;; EDITD_TEST_EDITCTL is an `editctl'.  `theirs' is another client of the same daemon, and
;; `outside' a program that knows of none.

;;; Code:

(require 'cl-lib)
(require 'ert)
(require 'editd)
(require 'smerge-mode)

(defvar tests-root (file-name-as-directory (getenv "EDITD_TEST_ROOT")))
(defvar tests-serial 0 "So that each test has files of its own.")
(defvar tests-their-connection nil "Somebody else's.")

(when (boundp 'native-comp-enable-subr-trampolines) ; the tests replace functions such as `yes-or-no-p'
  (setq native-comp-enable-subr-trampolines nil))

(setq editd-program (list (getenv "EDITD_TEST_EDITCTL"))
      make-backup-files nil
      auto-save-default nil
      editd-timeout 30)                 ; the machine may be busy

;;; What the tests are made of

(defun tests-file (content &optional name)
  "A new file that holds CONTENT, its name ending in NAME."
  (let ((file (expand-file-name (format "%d-%s" (cl-incf tests-serial) (or name "a.txt")) tests-root)))
    (outside file content)
    file))

(defun outside (file content)
  "Have a program that knows of no daemon write CONTENT into FILE."
  (let ((coding-system-for-write 'no-conversion)
        (write-region-inhibit-fsync t))
    (write-region (encode-coding-string content 'utf-8-unix) nil file nil 'quiet)))

(defun holds (file)
  "The bytes of FILE."
  (editd--literally file))

(defun their (method params)
  "Somebody else's answer to METHOD with PARAMS."
  (let ((default-directory tests-root)
        (workspace (editd--workspace tests-root)))
    (unless (and tests-their-connection (jsonrpc-running-p tests-their-connection))
      (editd--connected workspace)
      (setq tests-their-connection
            (editd--open-socket (editd--workspace-socket workspace) #'ignore #'ignore))
      (jsonrpc-request tests-their-connection 'hello '(:client "robot" :session "night")))
    (jsonrpc-request tests-their-connection method params)))

(defun theirs (file content)
  "Have somebody else write CONTENT into FILE through the daemon, and return the number."
  (let ((answer (their 'apply `(:edits [(:op "write" :path ,(file-relative-name file tests-root)
                                             :content ,content :force t)]
                                       :message "Night work"))))
    (plist-get (plist-get answer :transaction) :seq)))

(defmacro eventually (condition)
  "Wait until CONDITION holds, which must be within half a minute."
  `(let ((deadline (time-add nil 30)))
     (while (not (or ,condition (time-less-p deadline nil)))
       (accept-process-output nil 0.02))
     (should ,condition)))

(defmacro visiting (file &rest body)
  "Do BODY in a buffer that visits FILE in `editd-mode'."
  (declare (indent 1))
  `(let ((buffer (find-file-noselect ,file)))
     (unwind-protect
         (with-current-buffer buffer
           (editd-mode 1)
           (should editd-mode)
           (eventually (editd--live-p (editd--workspace editd--root)))
           ,@body)
       (when (buffer-live-p buffer)
         (with-current-buffer buffer (set-buffer-modified-p nil))
         (kill-buffer buffer)))))

(defmacro answering (keys &rest body)
  "Do BODY; what is asked is answered by KEYS, in order: all of them must be used."
  (declare (indent 1))
  `(let ((keys (copy-sequence ,keys)) (asked nil))
     (cl-letf (((symbol-function 'read-multiple-choice)
                (lambda (prompt choices)
                  (push prompt asked)
                  (let ((key (or (pop keys) (ert-fail (list 'asked prompt)))))
                    (or (assq key choices) (ert-fail (list 'not-offered key choices))))))
               ((symbol-function 'y-or-n-p) (lambda (prompt) (push prompt asked) (eq (pop keys) ?y)))
               ((symbol-function 'yes-or-no-p) (lambda (prompt) (push prompt asked) (eq (pop keys) ?y))))
       (prog1 (progn ,@body)
         (should-not keys)))))

(defmacro saying (&rest body)
  "What is said in the echo area while BODY is done, as one text."
  `(let ((said nil))
     (cl-letf (((symbol-function 'message)
                (lambda (format &rest arguments)
                  (when format (push (apply #'format-message format arguments) said)))))
       ,@body)
     (string-join (nreverse said) "\n")))

(defun append-text (text)
  (goto-char (point-max))
  (insert text))

(defun newest (file)
  "The newest transaction of FILE: what others are recorded meanwhile does not count."
  (let ((path (editd--path-value (file-relative-name file tests-root))))
    (aref (plist-get (their 'log `(:limit 1 :path ,path)) :transactions) 0)))

(defun saved-by-editd-p (file)
  "Is the newest transaction of FILE an edit by this Emacs, of it alone?"
  (let ((transaction (newest file)))
    (and (equal (plist-get transaction :kind) "edit")
         (equal (plist-get transaction :actor) "emacs")
         (equal (editd--files-of transaction) (list (file-relative-name file tests-root))))))

;;; Saving

(ert-deftest a-save-is-a-transaction-of-emacs ()
  (let ((file (tests-file "one\n")))
    (visiting file
      (append-text "two\n")
      (save-buffer)
      (should (equal (holds file) "one\ntwo\n"))
      (should (saved-by-editd-p file))
      (should-not (buffer-modified-p))
      (should (verify-visited-file-modtime (current-buffer)))
      (append-text "three\n")
      (save-buffer)
      (should (equal (holds file) "one\ntwo\nthree\n")))))

(ert-deftest a-new-file-and-its-folder-are-made-by-the-daemon ()
  (let ((file (expand-file-name "deep/er/new.txt" tests-root)))
    (visiting file
      (setq buffer-read-only nil)       ; as Emacs has it where the folder is missing
      (append-text "new\n")
      (answering '(?y) (save-buffer))
      (should (equal (holds file) "new\n"))
      (should (saved-by-editd-p file)))))

(ert-deftest the-hooks-around-a-save-run-and-the-last-line-ends ()
  (let ((file (tests-file "one\n")) (ran nil))
    (visiting file
      (setq-local require-final-newline t)
      (add-hook 'before-save-hook (lambda () (push 'before ran) (append-text "by hook")) nil t)
      (add-hook 'after-save-hook (lambda () (push (holds file) ran)) nil t)
      (append-text "two")
      (save-buffer)
      (should (equal ran '("one\ntwo\nby hook" before))))
    (visiting file
      (setq-local require-final-newline t)
      (append-text "\nlast")
      (save-buffer)
      (should (string-suffix-p "\nlast\n" (holds file))))))

(ert-deftest the-mode-of-a-script-stays ()
  (let ((file (tests-file "#!/bin/sh\n" "run.sh")))
    (set-file-modes file #o755)
    (visiting file
      (append-text "true\n")
      (save-buffer)
      (should (saved-by-editd-p file))
      (should (= (file-modes file) #o755)))))

(ert-deftest bytes-are-those-that-emacs-would-write ()
  (pcase-dolist (`(,coding ,text)
                 '((utf-8-unix "é\n") (utf-8-dos "é\nü\n") (utf-8-with-signature-unix "é\n")
                   (utf-8-with-signature-dos "a\nb\n") (iso-latin-1-unix "é\n") (utf-16le-with-signature-dos "é\n")
                   (utf-8-mac "a\nb\n") (undecided-unix "a\n") (iso-2022-jp-unix "日本\n")))
    (let* ((file (tests-file ""))
           (plain (concat file ".plain")))
      (visiting file
        (setq buffer-file-coding-system coding)
        (insert text)
        (save-buffer)
        (should (saved-by-editd-p file))
        (let ((coding-system-for-write coding))
          (write-region (point-min) (point-max) plain nil 'quiet))
        (should (equal (cons coding (holds file)) (cons coding (holds plain))))
        (should (coding-system-equal buffer-file-coding-system coding)))
      (delete-file plain)
      (visiting file                    ; what was saved is read again
        (should (equal (buffer-string) text))
        (append-text "z")
        (save-buffer)
        (should (saved-by-editd-p file))))))

(ert-deftest text-that-an-ascii-file-did-not-have-yet-is-encoded-as-emacs-chooses ()
  (let ((file (tests-file "ascii\n")))
    (visiting file
      (append-text "Grüße\n")
      (save-buffer)
      (should (equal (holds file) (encode-coding-string "ascii\nGrüße\n" 'utf-8-unix))))))

(ert-deftest bytes-that-are-no-text-stay ()
  (let ((file (tests-file "")) (bytes (unibyte-string 0 255 128 10 13 10 195 40)))
    (let ((coding-system-for-write 'no-conversion)) (write-region bytes nil file nil 'quiet))
    (let ((buffer (find-file-noselect file nil t)))
      (unwind-protect
          (with-current-buffer buffer
            (editd-mode 1)
            (append-text "x")
            (save-buffer)
            (should (equal (holds file) (concat bytes "x")))
            (should (saved-by-editd-p file)))
        (kill-buffer buffer)))
    (visiting file                      ; as text with bytes that are none
      (append-text "é")
      (save-buffer)
      (should (string-prefix-p bytes (holds file))))))

(ert-deftest many-buffers-are-saved-at-once ()
  (let ((one (tests-file "1\n")) (other (tests-file "2\n")))
    (visiting one
      (append-text "more\n")
      (let ((first (current-buffer)))
        (visiting other
          (append-text "more\n")
          (their 'settle nil)
          (save-some-buffers t)
          (should-not (buffer-modified-p first))
          (should-not (buffer-modified-p))
          (should (equal (list (holds one) (holds other)) '("1\nmore\n" "2\nmore\n")))
          (should (equal (mapcar (lambda (transaction) (plist-get transaction :kind))
                                 (plist-get (their 'log '(:limit 2)) :transactions))
                         '("edit" "edit"))))))))

(ert-deftest a-buffer-that-is-written-elsewhere-follows-its-new-file ()
  (let* ((file (tests-file "one\n")) (other (concat file ".copy")))
    (visiting file
      (append-text "two\n")
      (write-file other)
      (should editd-mode)
      (should (saved-by-editd-p other))
      (should (equal (holds file) "one\n"))
      (append-text "three\n")
      (save-buffer)
      (should (saved-by-editd-p other))
      (should (equal (holds other) "one\ntwo\nthree\n")))))

(ert-deftest another-major-mode-does-not-forget-what-was-read ()
  (let ((file (tests-file "one\n")))
    (visiting file
      (append-text "mine\n")
      (outside file "theirs\n")
      (emacs-lisp-mode)
      (should editd-mode)
      (should-not create-lockfiles)
      (answering '(?c) (should-error (save-buffer) :type 'user-error))
      (should (equal (holds file) "theirs\n")))))

(ert-deftest a-link-stays-a-link ()
  (let* ((file (tests-file "one\n")) (link (concat file ".link")))
    (make-symbolic-link (file-name-nondirectory file) link)
    (visiting link
      (append-text "two\n")
      (save-buffer)
      (should (file-symlink-p link))
      (should (equal (holds file) "one\ntwo\n")))))

(ert-deftest emacs-leaves-no-lock-file-in-the-history ()
  (let ((file (tests-file "one\n")))
    (visiting file
      (append-text "two\n")
      (should-not (file-symlink-p (expand-file-name (concat ".#" (file-name-nondirectory file)) tests-root))))))

(ert-deftest backups-are-made-only-where-they-are-wanted ()
  (let ((make-backup-files t) (backup-enable-predicate #'stringp) (file (tests-file "one\n")) (other (tests-file "one\n")))
    (visiting file
      (append-text "two\n")
      (save-buffer)
      (should-not (file-exists-p (concat file "~"))))
    (let ((editd-make-backups t))
      (visiting other
        (append-text "two\n")
        (save-buffer)
        (should (equal (holds (concat other "~")) "one\n"))
        (should (saved-by-editd-p other))))))

(ert-deftest a-compressed-file-is-left-to-emacs ()
  (auto-compression-mode 1)
  (let ((file (expand-file-name "a.txt.gz" tests-root)))
    (visiting file
      (append-text "one\n")
      (save-buffer)
      (should (string-prefix-p (unibyte-string 31 139) (holds file)))
      (should (equal (buffer-string) "one\n")))))

(ert-deftest a-file-outside-of-any-workspace-is-emacs-own ()
  (let ((file (make-temp-file "editd-outside" nil nil "one\n")))
    (unwind-protect
        (with-current-buffer (find-file-noselect file)
          (editd-mode 1)
          (should-not editd-mode)
          (append-text "two\n")
          (save-buffer)
          (should (equal (holds file) "one\ntwo\n"))
          (kill-buffer))
      (delete-file file))))

(ert-deftest a-submodule-belongs-to-the-workspace-around-it-and-a-worktree-to-itself ()
  (let ((sub (expand-file-name "inner-sub/" tests-root))
        (tree (expand-file-name "inner-tree/" tests-root)))
    (unwind-protect
        (progn
          (make-directory sub)
          (make-directory tree)
          (with-temp-file (expand-file-name ".git" sub) (insert "gitdir: ../.git/modules/sub\n"))
          (with-temp-file (expand-file-name ".git" tree) (insert "gitdir: /none/worktrees/tree\n"))
          (should (equal (editd--root-of (expand-file-name "a" sub)) (file-name-as-directory tests-root)))
          (should (equal (editd--root-of (expand-file-name "a" tree)) tree)))
      (delete-directory sub t)
      (delete-directory tree t))))

(ert-deftest the-global-mode-takes-files-of-workspaces-alone ()
  (let ((file (tests-file "one\n")) (inside (expand-file-name ".git/description" tests-root)))
    (unwind-protect
        (progn
          (global-editd-mode 1)
          (with-current-buffer (find-file-noselect file)
            (should editd-mode)
            (kill-buffer))
          (with-current-buffer (find-file-noselect inside)
            (should-not editd-mode)
            (kill-buffer))
          (with-temp-buffer
            (text-mode)
            (should-not editd-mode)))
      (global-editd-mode -1))))

(ert-deftest all-of-a-narrowed-buffer-is-saved-and-followed ()
  (let ((file (tests-file "one\ntwo\nthree\n")))
    (visiting file
      (goto-char (point-min))
      (forward-line 1)
      (narrow-to-region (point) (line-beginning-position 2))
      (insert "mine\n")
      (save-buffer)
      (should (equal (holds file) "one\nmine\ntwo\nthree\n"))
      (theirs file "one\nmine\ntwo\nthree\nfour\n")
      (eventually (= (buffer-size) 24))
      (should (equal (buffer-string) "mine\ntwo\n")))))

(ert-deftest a-name-that-is-no-text-is-a-name ()
  (let ((file (tests-file "one\n" (concat (decode-coding-string "\351" 'utf-8) "-é.txt"))))
    (visiting file
      (append-text "two\n")
      (save-buffer)
      (should (equal (holds file) "one\ntwo\n"))
      (should (saved-by-editd-p file))
      (outside file "three\n")
      (eventually (equal (buffer-string) "three\n")))))

;;; A save that is refused

(ert-deftest a-stale-save-overwrites-nothing-and-says-by-whom ()
  (let ((file (tests-file "one\n")))
    (visiting file
      (append-text "mine\n")
      (theirs file "theirs\n")
      (answering '(?c)
        (should-error (save-buffer) :type 'user-error)
        (should (string-match-p "changed by robot in night" (car asked))))
      (should (equal (holds file) "theirs\n"))
      (should (equal (buffer-string) "one\nmine\n"))
      (should (buffer-modified-p)))))

(ert-deftest what-a-shell-did-makes-a-save-stale-too ()
  (let ((file (tests-file "one\n")))
    (visiting file
      (append-text "mine\n")
      (outside file "shell\n")
      (answering '(?d ?c)
        (should-error (save-buffer) :type 'user-error))
      (with-current-buffer "*editd-diff*"
        (should (string-match-p "^\\+shell$" (buffer-string))))
      (should (equal (holds file) "shell\n")))))

(ert-deftest stale-reload-takes-the-file ()
  (let ((file (tests-file "one\n")))
    (visiting file
      (append-text "mine\n")
      (theirs file "theirs\n")
      (answering '(?r) (save-buffer))
      (should (equal (buffer-string) "theirs\n"))
      (should-not (buffer-modified-p))
      (should (equal (holds file) "theirs\n")))))

(ert-deftest stale-overwrite-keeps-the-others-text-in-the-history ()
  (let ((file (tests-file "one\n")))
    (visiting file
      (append-text "mine\n")
      (let ((seq (theirs file "theirs\n")))
        (answering '(?o) (save-buffer))
        (should (equal (holds file) "one\nmine\n"))
        (should (equal (plist-get (their 'read (list :path editd--path :at (number-to-string seq))) :content)
                       "theirs\n"))))))

(ert-deftest stale-merge-saves-both ()
  (let ((file (tests-file "a\nb\nc\nd\ne\n")))
    (visiting file
      (goto-char (point-min))
      (insert "mine\n")
      (theirs file "a\nb\nc\nd\ne\ntheirs\n")
      (answering '(?m) (save-buffer))
      (should (equal (holds file) "mine\na\nb\nc\nd\ne\ntheirs\n"))
      (should (equal (buffer-string) "mine\na\nb\nc\nd\ne\ntheirs\n"))
      (should (looking-at "a\n"))       ; point stayed
      (should-not (buffer-modified-p))
      (append-text "x\n")
      (save-buffer)
      (should (saved-by-editd-p file)))))

(ert-deftest stale-merge-of-the-same-lines-gives-conflict-markers ()
  (let ((file (tests-file "a\nb\nc\n")))
    (visiting file
      (goto-char (point-min))
      (forward-line 1)
      (insert "mine ")
      (theirs file "a\ntheirs b\nc\n")
      (answering '(?m) (should-error (save-buffer) :type 'user-error))
      (should (equal (holds file) "a\ntheirs b\nc\n"))
      (should smerge-mode)
      (should (buffer-modified-p))
      (should (equal (buffer-string)
                     (concat "a\n<<<<<<< mine\nmine b\n||||||| base\nb\n=======\n"
                             "theirs b\n>>>>>>> theirs\nc\n")))
      (goto-char (point-min))
      (smerge-next)
      (smerge-keep-upper)
      (should (equal (buffer-string) "a\nmine b\nc\n"))
      (answering nil (save-buffer))     ; resolved against what was merged: nothing more is asked
      (should (equal (holds file) "a\nmine b\nc\n")))))

(ert-deftest a-file-that-somebody-made-first-is-not-overwritten ()
  (let ((file (tests-file "")))
    (delete-file file)
    (visiting file
      (append-text "mine\n")
      (outside file "first\n")
      (answering '(?c) (should-error (save-buffer) :type 'user-error))
      (should (equal (holds file) "first\n")))))

(ert-deftest a-file-that-somebody-removed-is-made-anew-only-when-asked ()
  (let ((file (tests-file "one\n")))
    (visiting file
      (append-text "mine\n")
      (their 'apply `(:edits [(:op "delete" :path ,editd--path)]))
      (eventually (eq editd--theirs 'gone))
      (answering '(?c) (should-error (save-buffer) :type 'user-error))
      (should-not (file-exists-p file))
      (answering '(?o) (save-buffer))
      (should (equal (holds file) "one\nmine\n")))))

(ert-deftest another-refusal-is-shown-with-its-hint-and-emacs-may-save ()
  (let ((file (tests-file "one\n")))
    (add-name-to-file file (concat file ".hard"))
    (visiting file
      (append-text "two\n")
      (answering '(?n)
        (should-error (save-buffer) :type 'user-error)
        (should (string-match-p "link" (car asked))))
      (should (equal (holds file) "one\n"))
      (answering '(?y) (save-buffer))
      (should (equal (holds file) "one\ntwo\n"))
      (should-not (buffer-modified-p)))))

(ert-deftest a-lease-of-somebody-else-is-told ()
  (let ((file (tests-file "one\n")))
    (visiting file
      (append-text "two\n")
      (let ((tests-their-connection nil)) ; one that is attached to a session
        (their 'session.open '(:name "holder"))
        (their 'lease.acquire `(:paths [,editd--path] :ttl 60))
        (answering '(?n)
          (should-error (save-buffer) :type 'user-error)
          (should (string-match-p "holder" (car asked))))
        (their 'session.close nil)
        (jsonrpc-shutdown tests-their-connection))
      (save-buffer)
      (should (saved-by-editd-p file)))))

;;; Following the file

(ert-deftest a-buffer-without-changes-follows-its-file-and-point-stays ()
  (let ((file (tests-file "a\nb\nc\n")))
    (visiting file                      ; whose coming is heard of yet, and is not what is said
      (goto-char (point-min))
      (search-forward "b")
      (let ((marker (copy-marker (line-beginning-position 2)))
            (said (saying (theirs file "first\na\nb\nc\nlast\n")
                          (eventually (equal (buffer-string) "first\na\nb\nc\nlast\n")))))
        (should (string-match-p "changed by robot in night; reloaded" said))
        (should (looking-at "\nc"))
        (should (equal (char-after marker) ?c)))
      (should-not (buffer-modified-p))
      (should (verify-visited-file-modtime (current-buffer)))
      (append-text "mine\n")
      (answering nil (save-buffer))
      (should (equal (holds file) "first\na\nb\nc\nlast\nmine\n")))))

(ert-deftest what-a-shell-writes-is-followed-too ()
  (let ((file (tests-file "a\n")))
    (visiting file
      (outside file "b\n")
      (eventually (equal (buffer-string) "b\n")))))

(ert-deftest undo-in-the-buffer-goes-back-behind-a-reload ()
  (let ((file (tests-file "a\n")))
    (visiting file
      (buffer-enable-undo)
      (append-text "mine\n")
      (undo-boundary)
      (save-buffer)
      (theirs file "first\na\nmine\n")
      (eventually (equal (buffer-string) "first\na\nmine\n"))
      (undo-boundary)
      (undo-start)
      (let ((seen nil))
        (while (not (equal (buffer-string) "a\n")) ; `undo-more' ends it where there is no more
          (undo-more 1)
          (push (buffer-string) seen))
        (should (member "a\nmine\n" seen))))))

(ert-deftest other-encodings-are-followed ()
  (let ((file (tests-file "ascii\n")))
    (visiting file
      (theirs file "Grüße\n")
      (eventually (equal (buffer-string) "Grüße\n"))
      (should-not (buffer-modified-p))
      (their 'apply `(:edits [(:op "write" :path ,editd--path :content (:base64 ,(base64-encode-string "\351\r\n"))
                                   :force t)]))
      (eventually (equal (holds file) "\351\r\n"))
      (eventually (equal (buffer-string) "é\n"))
      (append-text "x")
      (save-buffer)
      (should (equal (holds file) "\351\r\nx\r\n")))))

(ert-deftest a-buffer-with-changes-gets-a-mark-and-merges ()
  (let ((file (tests-file "a\nb\nc\nd\n")))
    (visiting file
      (setq-local editd-merge-changes 'ask)
      (goto-char (point-min))
      (insert "mine\n")
      (should (equal (editd--lighter) " editd"))
      (theirs file "a\nb\nc\nd\ntheirs\n")
      (eventually (equal (substring-no-properties (editd--lighter)) " editd!"))
      (should (equal (buffer-string) "mine\na\nb\nc\nd\n"))
      (editd-merge)
      (should (equal (buffer-string) "mine\na\nb\nc\nd\ntheirs\n"))
      (should (buffer-modified-p))
      (should (equal (editd--lighter) " editd"))
      (should (equal (holds file) "a\nb\nc\nd\ntheirs\n"))
      (answering nil (save-buffer))
      (should (equal (holds file) "mine\na\nb\nc\nd\ntheirs\n")))))

(ert-deftest the-mark-goes-when-the-file-is-as-it-was ()
  (let ((file (tests-file "a\n")))
    (visiting file
      (setq-local editd-merge-changes 'ask)
      (append-text "mine\n")
      (let ((seq (theirs file "b\n")))
        (eventually editd--theirs)
        (their 'undo (list :tx (number-to-string seq))))
      (eventually (not editd--theirs))
      (answering nil (save-buffer))
      (should (equal (holds file) "a\nmine\n")))))

(ert-deftest a-file-that-was-moved-is-told-with-its-new-name ()
  (let ((file (tests-file "one\n")))
    (visiting file
      (should (string-match-p "removed by robot in night: it is moved.txt now"
                              (saying (their 'apply `(:edits [(:op "move" :path ,editd--path :to "moved.txt"
                                                                   :overwrite t)]))
                                      (eventually (eq editd--theirs 'gone)))))
      (should (equal (buffer-string) "one\n")))))

(ert-deftest what-is-written-right-behind-a-save-is-seen ()
  (let* ((file (tests-file "one\n"))
         (behind (lambda (answer) (outside file "behind\n") answer)))
    (visiting file
      (append-text "two\n")
      (advice-add 'editd--apply :filter-return behind)
      (unwind-protect (save-buffer)
        (advice-remove 'editd--apply behind))
      (should (equal (buffer-string) "behind\n"))
      (should-not (buffer-modified-p))
      (append-text "mine\n")
      (answering nil (save-buffer))
      (should (equal (holds file) "behind\nmine\n")))))

(ert-deftest of-all-that-two-write-at-once-nothing-is-lost ()
  (let ((file (tests-file (concat (mapconcat #'number-to-string (number-sequence 1 31) "\n") "\n")))
        (rounds (string-to-number (or (getenv "EDITD_TEST_ROUNDS") "12")))
        (asked 0) (lines nil))
    (visiting file
      (setq-local editd-merge-changes 'ask)
      (cl-letf (((symbol-function 'read-multiple-choice) (lambda (&rest _) (cl-incf asked) '(?m "merge"))))
        (dotimes (round rounds)
          (goto-char (point-min))
          (insert (format "mine %d\n" round))
          (pcase (% round 4)            ; seen in time, unseen, from outside, and none
            ((or 0 1)
             (their 'read (list :path editd--path))
             (their 'apply `(:edits [(:op "replace" :path ,editd--path :old "\n30"
                                                   :new ,(format "\ntheirs %d\n30" round))])))
            (2 (outside file (replace-regexp-in-string "\n30" (format "\ntheirs %d\n30" round) (holds file)))))
          (when (= (% round 4) 0)
            (eventually editd--theirs))
          (unless (= (% round 4) 3)
            (push (format "theirs %d" round) lines))
          (push (format "mine %d" round) lines)
          (save-buffer)
          (should-not (buffer-modified-p))
          (should (equal (holds file) (encode-coding-string (buffer-string) 'utf-8)))))
      (should (= asked (* 3 (/ rounds 4))))
      (dolist (line lines)
        (should (string-match-p (format "^%s$" line) (holds file)))))))

;;; Unsaved text

(defun held (file)
  "The holds of FILE, as pairs of a base and a version."
  (let ((path (file-relative-name file tests-root)))
    (cl-loop for document across (plist-get (their 'document.list nil) :documents)
             when (equal (plist-get document :path) path)
             collect (cons (plist-get document :base) (plist-get document :version)))))

(defun held-as-here-p (file)
  "Does the daemon hold this buffer's text of FILE, on its base?"
  (equal (held file) (list (cons editd--base (editd--version (car (editd--encoded)))))))

(ert-deftest unsaved-text-takes-in-an-edit-of-other-lines ()
  (let ((file (tests-file "a\nb\nc\nd\n")))
    (visiting file
      (append-text "mine\n")
      (eventually (held-as-here-p file))
      (let* ((answer (their 'apply `(:edits [(:op "replace" :path ,editd--path :old "a\n" :new "theirs\n")])))
             (seq (plist-get (plist-get answer :transaction) :seq)))
        (should (equal (plist-get (aref (plist-get answer :files) 0) :unsaved) "merged"))
        (should (string-match-p "Merged the changes by robot in night in .*; it is not saved yet"
                                (saying (eventually (equal (buffer-string) "theirs\nb\nc\nd\nmine\n")))))
        (should seq))
      (should (buffer-modified-p))
      (eventually (held-as-here-p file))
      (let ((both (buffer-string)))
        (undo-only)
        (should (equal (buffer-string) "a\nb\nc\nd\nmine\n"))
        (editd--replace both))
      (answering nil (save-buffer))
      (should (equal (holds file) "theirs\nb\nc\nd\nmine\n"))
      (should-not (held file)))))

(ert-deftest unsaved-text-takes-in-an-edit-that-comes-during-a-merge ()
  (let ((file (tests-file "a\nb\nc\nd\ne\n"))
        (answers nil))                  ; withheld: functions and their arguments, the newest first
    (visiting file
      (append-text "mine\n")
      (cl-letf* ((ask (symbol-function 'jsonrpc-async-request))
                 ((symbol-function 'jsonrpc-async-request)
                  (lambda (connection method params &rest more)
                    (if (eq method 'apply)
                        (push (list (plist-get more :success-fn) (jsonrpc-request connection method params))
                              answers)
                      (apply ask connection method params more)))))
        (dolist (letter '("a" "e"))
          (let ((before (length answers)))
            (their 'apply `(:edits [(:op "replace" :path ,editd--path :old ,(concat letter "\n")
                                         :new ,(concat (upcase letter) "\n"))]))
            (eventually (> (length answers) before)))))
      (apply #'funcall (car (last answers)))
      (should (equal (buffer-string) "A\nb\nc\nd\ne\nmine\n"))
      (apply #'funcall (car answers))
      (eventually (equal (buffer-string) "A\nb\nc\nd\nE\nmine\n"))
      (should-not editd--theirs))))

(ert-deftest unsaved-lines-are-not-for-others ()
  (let ((file (tests-file "a\nb\nc\n")))
    (visiting file
      (goto-char (point-min))
      (forward-line 1)
      (insert "mine ")
      (eventually (held-as-here-p file))
      (let* ((edit `(:edits [(:op "replace" :path ,editd--path :old "b\n" :new "theirs\n")]))
             (refusal (should-error (their 'apply edit) :type 'jsonrpc-error))
             (data (alist-get 'jsonrpc-error-data (cddr refusal))))
        (should (equal (plist-get data :name) "unsaved"))
        (should (equal (plist-get (plist-get data :data) :lines) [(:start_line 2 :end_line 2)]))
        (should (string-match-p "unsaved changes in emacs, in line 2,"
                                (alist-get 'jsonrpc-error-message (cddr refusal))))
        (should (equal (holds file) "a\nb\nc\n"))))
    (eventually (null (held file)))))   ; the buffer was killed

(ert-deftest unsaved-text-of-a-private-file-stays-here ()
  (let ((file (tests-file "TOKEN=1\n" ".env.local")))
    (visiting file
      (setq-local editd-private '("*.env*"))
      (append-text "TOKEN=2\n")
      (eventually (held file))
      (should (equal (held file) (list (cons editd--base nil))))
      (setq-local editd-share-unsaved nil)
      (editd--hold)
      (eventually (null (held file)))
      (setq-local editd-share-unsaved 'flag editd-private nil)
      (editd--hold)
      (eventually (equal (held file) (list (cons editd--base nil)))))))

(ert-deftest unsaved-text-of-one-mebibyte-is-typed-into ()
  (let ((file (tests-file (mapconcat (lambda (n) (format "%063d\n" n)) (number-sequence 1 16380) "")))
        (longest 0))
    (visiting file
      (dotimes (n 30)
        (let ((began (float-time)))
          (goto-char (point-min))
          (forward-line (* 2 n))
          (insert "typed ")
          (setq longest (max longest (- (float-time) began))))
        (accept-process-output nil 0.05))
      (should (< longest 1))
      (eventually (null editd--hold-timer))
      (eventually (held-as-here-p file))
      (their 'apply `(:edits [(:op "replace" :path ,editd--path :old ,(format "%063d\n" 9999) :new "theirs\n")]))
      (eventually (save-excursion (goto-char (point-min)) (search-forward "\ntheirs\n" nil t))))))

;;; History

(ert-deftest undo-and-redo-take-the-buffer-along ()
  (let ((file (tests-file "one\n")))
    (visiting file
      (append-text "two\n")
      (save-buffer)
      (let ((seq (plist-get (newest file) :seq)))
        (editd-undo (number-to-string seq))
        (should (equal (buffer-string) "one\n"))
        (should (equal (holds file) "one\n"))
        (editd-redo)
        (should (equal (buffer-string) "one\ntwo\n"))
        (editd-undo)
        (should (equal (buffer-string) "one\n"))))))

(ert-deftest an-undo-with-later-changes-in-the-way-asks-before-it-forces ()
  (let ((file (tests-file "one\n")))
    (visiting file
      (let ((seq (theirs file "two\n")))
        (theirs file "three\n")
        (answering '(?n) (should-error (editd-undo (number-to-string seq)) :type 'editd-refused))
        (should (equal (holds file) "three\n"))
        (answering '(?y) (editd-undo (number-to-string seq)))
        (should (equal (buffer-string) "one\n"))))))

(ert-deftest a-rollback-takes-back-a-session-and-keeps-mine ()
  (let ((file (tests-file "a\nb\nc\nd\ne\n")) (session (format "night-%d" tests-serial)))
    (visiting file
      (their 'apply `(:edits [(:op "replace" :path ,editd--path :old "a\n" :new "robots\n")] :session ,session))
      (eventually (string-prefix-p "robots" (buffer-string)))
      (append-text "mine\n")
      (save-buffer)
      (should (member session (editd--sessions)))
      (editd-rollback session)
      (should (equal (buffer-string) "a\nb\nc\nd\ne\nmine\n")))))

(ert-deftest the-log-shows-and-undoes ()
  (let ((file (tests-file "one\n")))
    (visiting file
      (let ((seq (theirs file "two\n")))
        (save-window-excursion
          (editd-log)
          (should (derived-mode-p 'editd-log-mode))
          (goto-char (point-min))
          (should (equal (tabulated-list-get-id) seq))
          (should (equal (append (tabulated-list-get-entry) nil)
                         (list (number-to-string seq) (format-time-string "%F %R") "edit" "robot in night"
                               "Night work")))
          (call-interactively #'editd-show)
          (with-current-buffer "*editd-diff*"
            (should (string-match-p (format "\\`%d edit by robot in night" seq) (buffer-string)))
            (should (string-match-p "^\\+two$" (buffer-string))))
          (call-interactively #'editd-undo-at-point)
          (should (equal (holds file) "one\n"))
          (goto-char (point-min))
          (let ((undo (tabulated-list-get-id)))
            (should (> undo seq))
            (while (> (tabulated-list-get-id) seq) ; what a test before this one left may be recorded between
              (forward-line 1))
            (should (string-match-p (format "undone by %d" undo) (aref (tabulated-list-get-entry) 4))))
          (kill-buffer))
        (should (equal (buffer-string) "one\n"))))))

(ert-deftest blame-names-the-writer-of-each-line ()
  (let ((file (tests-file "one\n")))
    (visiting file
      (append-text "mine\n")
      (save-buffer)
      (let ((mine (plist-get (newest file) :seq))
            (seq (theirs file "one\nmine\nrobot's é\n")))
        (eventually (string-match-p "robot" (buffer-string)))
        (save-window-excursion
          (editd-blame)
          (let ((lines (split-string (buffer-string) "\n" t)))
            (should (= (length lines) 3))
            (should (string-match-p (format "^ *%d .* emacs +mine$" mine) (nth 1 lines)))
            (should (string-match-p (format "^ *%d .* robot in night +robot's é$" seq) (nth 2 lines))))
          (goto-char (point-max))
          (forward-line -1)
          (call-interactively #'editd-undo-at-point)
          (kill-buffer))
        (should (equal (holds file) "one\nmine\n"))))))

(ert-deftest diff-shows-what-changed ()
  (let ((file (tests-file "one\n")))
    (visiting file
      (append-text "two\n")
      (save-buffer)
      (save-window-excursion
        (editd-diff (number-to-string (1- (plist-get (newest file) :seq)))))
      (with-current-buffer "*editd-diff*"
        (should (derived-mode-p 'diff-mode))
        (should (string-match-p "^\\+two$" (buffer-string)))))))

(ert-deftest status-says-how-the-daemon-is ()
  (visiting (tests-file "one\n")
    (should (string-match-p "ready, [0-9]+ transactions" (saying (editd-status))))))

;;; Proposals

(defun proposed (file &rest edits)
  "Propose EDITS of FILE, pairs of an old and a new text, and return the number."
  (let* ((path (file-relative-name file tests-root))
         (answer (their 'apply `( :propose t :message "Slow networks"
                                  :edits ,(vconcat (mapcar (lambda (edit)
                                                             `(:op "replace" :path ,path
                                                                   :old ,(car edit) :new ,(cdr edit)))
                                                           edits))))))
    (plist-get (plist-get answer :proposal) :proposal)))

(defun state-of (number)
  "The state and the last comment of proposal NUMBER."
  (let* ((proposal (their 'proposal.get (list :proposal number)))
         (decisions (plist-get proposal :decisions)))
    (cons (plist-get proposal :state)
          (and (> (length decisions) 0) (plist-get (aref decisions (1- (length decisions))) :comment)))))

(defmacro reviewing (number &rest body)
  "Do BODY in the buffer of proposal NUMBER; the PIN is given if it is asked for."
  (declare (indent 1))
  `(let ((default-directory tests-root))
     (save-window-excursion
       (cl-letf (((symbol-function 'read-passwd) (lambda (&rest _) "1234")))
         (editd-show-proposal ,number)
         ,@body))))

(ert-deftest proposals-are-listed-and-land-by-hunks ()
  (let* ((file (tests-file "a\nb\nc\nd\ne\nf\ng\n"))
         (number (proposed file '("a\n" . "A\n") '("g\n" . "G\n")))
         (default-directory tests-root))
    (save-window-excursion
      (editd-proposals)
      (should (string-match-p (format "^ *%d robot in night +\\+2 -2 +%s +Slow networks" number
                                      (file-relative-name file tests-root))
                              (buffer-string))))
    (reviewing number
      (should (derived-mode-p 'diff-mode))
      (goto-char (point-min))
      (search-forward "+A")
      (editd-leave-hunk)
      (should (looking-at-p "@@"))      ; the second one
      (editd-toggle-hunk)
      (editd-toggle-hunk)
      (should (string-match-p (format "Proposal %d has landed as " number)
                              (saying (editd-approve "Only the last")))))
    (should (equal (holds file) "a\nb\nc\nd\ne\nf\nG\n"))
    (should (equal (cdr (state-of number)) "Only the last"))))

(ert-deftest proposals-land-with-the-reviewers-text-or-are-rejected ()
  (let* ((file (tests-file "a\nb\nc\n"))
         (number (proposed file '("b\n" . "B\n"))))
    (visiting file
      (append-text "mine\n")
      (should (string-match-p "has changes here that are not saved"
                              (saying (reviewing number
                                        (pcase-let ((`(,now ,to-be)
                                                     (editd--proposal-sides (file-relative-name file tests-root))))
                                          (should (equal (with-current-buffer now (buffer-string)) "a\nb\nc\n"))
                                          (with-current-buffer to-be
                                            (should (equal (buffer-string) "a\nB\nc\n"))
                                            (goto-char (point-min))
                                            (insert "reviewed\n")))
                                        (editd-approve)))))
      (should (equal (holds file) "reviewed\na\nB\nc\n"))
      (should (equal (plist-get (newest file) :modified) t))
      (eventually (equal (buffer-string) "reviewed\na\nB\nc\nmine\n")))
    (setq number (proposed file '("c\n" . "C\n")))
    (reviewing number (editd-reject "Use the helper"))
    (should (equal (state-of number) '("rejected" . "Use the helper")))
    (should (equal (holds file) "reviewed\na\nB\nc\n"))))

(ert-deftest proposals-that-have-changed-do-not-land-unseen ()
  (let* ((file (tests-file "a\nb\nc\n"))
         (number (proposed file '("b\n" . "B\n"))))
    (reviewing number
      (theirs file "a\nother\nc\n")
      (should-error (editd-approve) :type 'editd-refused)
      (should (equal (holds file) "a\nother\nc\n"))
      (should (string-match-p "^-b$" (buffer-string)))
      (editd-reject ""))
    (should (equal (car (state-of number)) "rejected"))))

(ert-deftest proposals-are-decided-at-the-reviewers-own-socket ()
  (let* ((tests-root (file-name-as-directory (getenv "EDITD_TEST_OWN_ROOT")))
         (default-directory tests-root)
         (tests-their-connection nil)
         (file (tests-file "a\nb\nc\n"))
         (number (proposed file '("b\n" . "B\n"))))
    (unwind-protect
        (progn
          (should (plist-get (editd--refusal-data
                              (should-error (editd--send 'proposal.reject (list :proposal number))
                                            :type 'editd-refused))
                             :needs_review_socket))
          (reviewing number (editd-approve "By the door for reviewers"))
          (should (equal (holds file) "a\nB\nc\n"))
          (should (equal (state-of number) '("landed" . "By the door for reviewers")))
          (let ((decision (aref (plist-get (their 'proposal.get (list :proposal number)) :decisions) 0)))
            (should (equal (plist-get (plist-get decision :by) :via) "review socket")))
          (setq number (proposed file '("c\n" . "C\n")))
          (reviewing number (editd-reject "Not this one"))
          (should (equal (state-of number) '("rejected" . "Not this one")))
          (theirs file "a\nC\nc\n")
          (let ((seq (plist-get (newest file) :seq)))
            (visiting file
              (should-error (editd--send 'undo (list :tx seq)) :type 'editd-refused)
              (editd-undo seq)
              (should (equal (buffer-string) "a\nB\nc\n"))))
          (should (equal (holds file) "a\nB\nc\n")))
      (jsonrpc-shutdown tests-their-connection))))

;;; When the daemon does not play along

(ert-deftest a-save-that-is-given-up-is-known-again-when-it-was-made ()
  (let ((file (tests-file "one\n")))
    (visiting file
      (editd--connected (editd--workspace editd--root))
      (append-text "two\n")
      (let ((pid (plist-get (their 'status nil) :pid)))
        (signal-process pid 'STOP)
        (unwind-protect
            (progn
              (run-at-time 0.3 nil (lambda () (setq quit-flag t)))
              (should (eq 'quit (condition-case nil (progn (save-buffer) 'saved) (quit 'quit))))
              (should (buffer-modified-p))
              (should (equal (buffer-string) "one\ntwo\n")))
          (signal-process pid 'CONT)))
      (eventually (equal (holds file) "one\ntwo\n"))
      (answering nil (save-buffer))     ; no question about one's own save
      (should (equal (holds file) "one\ntwo\n"))
      (should-not (buffer-modified-p)))))

(ert-deftest a-daemon-that-does-not-answer-holds-nobody-up ()
  (let ((file (tests-file "one\n")))
    (visiting file
      (append-text "two\n")
      (let ((pid (plist-get (their 'status nil) :pid)) (editd-timeout 0.5))
        (signal-process pid 'STOP)
        (unwind-protect
            (progn
              (let ((editd-without-daemon 'refuse))
                (should-error (save-buffer) :type 'user-error)
                (should (buffer-modified-p)))
              (should (string-match-p "Emacs saves .* without editd: The daemon did not answer"
                                      (saying (save-buffer)))))
          (signal-process pid 'CONT)))
      (should (equal (holds file) "one\ntwo\n"))
      (should-not (buffer-modified-p)))
    (their 'settle nil)                 ; what waited in the daemon overwrites nothing either
    (should (equal (holds file) "one\ntwo\n"))))

(ert-deftest a-daemon-that-is-killed-is-started-again-by-the-next-save ()
  (let ((file (tests-file "one\n")) (other (tests-file "one\n")))
    (visiting file
      (let ((first (current-buffer)))
        (visiting other
          (append-text "two\n")
          (signal-process (plist-get (their 'status nil) :pid) 'KILL)
          (save-buffer)
          (should (equal (holds other) "one\ntwo\n"))
          (should (saved-by-editd-p other))
          (theirs file "theirs\n")      ; and events come again
          (eventually (with-current-buffer first (equal (buffer-string) "theirs\n"))))))))

;; A process that is killed closes its connections before the socket that it listens at: who is quick
;; is let in once more, and put out again.
(ert-deftest a-socket-that-closes-at-once-is-that-of-a-daemon-in-its-end ()
  (let ((file (tests-file "one\n")) (ending (make-temp-name "/tmp/editd-tests-")) (let-in 0))
    (visiting file
      (append-text "two\n")
      (let* ((workspace (editd--workspace editd--root))
             (server (make-network-process :name "ending" :server t :family 'local :service ending :noquery t
                                           :log (lambda (_server connection _how)
                                                  (setq let-in (1+ let-in))
                                                  (delete-process connection)))))
        (unwind-protect
            (progn
              (their 'shutdown nil)
              (eventually (not (editd--live-p workspace)))
              (eventually (not (file-exists-p (editd--workspace-socket workspace))))
              (setf (editd--workspace-socket workspace) ending)
              (save-buffer)
              (should (= let-in 1))
              (should (saved-by-editd-p file)))
          (delete-process server)
          (delete-file ending))))))

(ert-deftest without-a-daemon-emacs-saves-and-asks-where-it-would-overwrite ()
  (let ((file (tests-file "one\n")))
    (visiting file
      (append-text "two\n")
      (let ((editd-program '("/nonexistent/editctl"))
            (workspace (editd--workspace editd--root)))
        (their 'shutdown nil)
        (eventually (not (editd--live-p workspace)))
        (eventually (not (file-exists-p (editd--workspace-socket workspace))))
        (should (string-match-p
                 "without editd: Program /nonexistent/editctl was not found; see .editd-program"
                 (saying (save-buffer))))
        (should (equal (holds file) "one\ntwo\n"))
        (append-text "mine\n")
        (outside file "theirs\n")
        (answering '(?n) (should-error (save-buffer) :type 'user-error))
        (should (equal (holds file) "theirs\n"))
        (answering '(?y) (save-buffer))
        (should (equal (holds file) "one\ntwo\nmine\n"))
        (should (equal (substring-no-properties (editd--lighter)) " editd-"))
        (let ((editd-start-daemon nil) (editd-program (list "false")))
          (should (string-match-p "editd-start-daemon" (progn (editd--connect workspace)
                                                              (editd--workspace-why workspace))))))
      (append-text "again\n")
      (save-buffer)                     ; editctl is there again, and starts a daemon
      (should (saved-by-editd-p file)))))

(provide 'editd-tests)
;;; editd-tests.el ends here
